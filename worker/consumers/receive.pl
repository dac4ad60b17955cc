# Takes the signals of a subscription: WEBHOOK_SECRET=whsec_… PORT=8000 perl receive.pl

use strict;
use warnings;
use Digest::SHA 'hmac_sha256';
use IO::Socket::INET;
use JSON::PP;
use MIME::Base64;

my $key = decode_base64($ENV{WEBHOOK_SECRET} =~ s/^whsec_//r);
my %seen;    # Yours is where your data are, and outlasts the program.
my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1:$ENV{PORT}", Listen => 9) or die $!;
$| = 1;
$SIG{PIPE} = 'IGNORE';    # The other side may hang up.
while (1) {
    my $peer = $server->accept or next;
    my (%head, $body);
    while (defined(my $line = <$peer>)) {
        last if $line eq "\r\n";
        $head{lc $1} = $2 if $line =~ /^([^:\s]+): *(.*?)\r\n/;
    }
    read $peer, $body, $head{'content-length'} // 0;
    my ($id, $at, $given) = map { $head{"webhook-$_"} // '' } qw(id timestamp signature);
    my $signed = 'v1,' . encode_base64(hmac_sha256("$id.$at.$body", $key), '');
    # Hashed with the key, what is compared tells nothing by the time that it takes.
    my $is_signed = hmac_sha256($given, $key) eq hmac_sha256($signed, $key);
    my $is_good = $is_signed && abs(time - $at) < 300;
    # Your part. Without an answer, the signal comes again.
    utf8::decode($body);
    my %told = (id => $id, kind => $head{'letterbox-kind'}, body => $body);
    print encode_json(\%told), "\n" if $is_good && !$seen{$id}++;
    print $peer 'HTTP/1.1 ', ($is_good ? '204 No Content' : '401 Unauthorized'),
        "\r\nConnection: close\r\n\r\n";
    close $peer;
}
