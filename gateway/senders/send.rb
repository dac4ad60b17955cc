# Signs a JSON body and posts it to a Letterbox webhook; tries again where that can help.
#
#   export WEBHOOK_URL=… WEBHOOK_SECRET=…
#   ruby send.rb body.json        # or, from standard input: ruby send.rb < body.json

require "net/http"
require "openssl"

TRIES = 6
SETTINGS = { open_timeout: 10, write_timeout: 10, read_timeout: 10, ignore_eof: false }.freeze
NO_ANSWER = [SystemCallError, SocketError, IOError, Timeout::Error, OpenSSL::SSL::SSLError,
             Net::ProtocolError, Net::HTTPBadResponse].freeze

# Returns the status, the answer, and the seconds that it asks to wait.
def post(url, body, headers)
  use_ssl = url.scheme == "https"
  response = Net::HTTP.start(url.hostname, url.port, use_ssl: use_ssl, **SETTINGS) do |http|
    http.post(url.request_uri, body, headers)
  end
  [response.code.to_i, response.body, response["Retry-After"].to_i]
rescue *NO_ANSWER => error
  [nil, error.message, 0]
end

url = URI(ENV.fetch("WEBHOOK_URL"))
body = ARGV.empty? ? $stdin.binmode.read : File.binread(ARGV.first)
# The key is the text of the secret as it was shown, not what its digits stand for.
signature = OpenSSL::HMAC.hexdigest("SHA256", ENV.fetch("WEBHOOK_SECRET"), body)
headers = { "Content-Type" => "application/json", "X-Service-Signature" => signature }

wait = Float(ENV.fetch("RETRY_FIRST_WAIT", "1"))
1.upto(TRIES) do |try|
  status, answer, asked = post(url, body, headers)
  if status == 202
    puts answer
    exit
  end
  can_help = [nil, 408, 429].include?(status) || status >= 500
  abort "#{status || 'no answer'} #{answer}" if !can_help || try == TRIES
  # A random part of a wait that doubles, or longer where the answer asks for it.
  sleep [rand * [wait, 30].min, asked].max
  wait *= 2
end
