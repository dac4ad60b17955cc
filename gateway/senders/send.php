<?php
// Signs a JSON body and posts it to a Letterbox webhook; tries again where that can help.
// Needs PHP 8 with its curl extension.
//
//   export WEBHOOK_URL=… WEBHOOK_SECRET=…
//   php send.php body.json        # or, from standard input: php send.php < body.json

declare(strict_types=1);

const TRIES = 6;

$url = getenv('WEBHOOK_URL') ?: throw new RuntimeException('WEBHOOK_URL is not set');
$secret = getenv('WEBHOOK_SECRET') ?: throw new RuntimeException('WEBHOOK_SECRET is not set');
$wait = (float) (getenv('RETRY_FIRST_WAIT') ?: 1);
$body = file_get_contents($argv[1] ?? 'php://stdin');
if ($body === false) {
    exit(1);
}

// The key is the text of the secret as it was shown, not what its digits stand for.
$signature = hash_hmac('sha256', $body, $secret);

$asked = 0;
$curl = curl_init($url);
curl_setopt_array($curl, [
    CURLOPT_POSTFIELDS => $body,
    CURLOPT_HTTPHEADER => ['Content-Type: application/json', "X-Service-Signature: $signature"],
    CURLOPT_HEADERFUNCTION => function ($curl, string $line) use (&$asked): int {
        if (preg_match('/^retry-after: *(\d+)\s*$/i', $line, $match)) {
            $asked = (int) $match[1];
        }
        return strlen($line);
    },
    CURLOPT_RETURNTRANSFER => true,
    CURLOPT_TIMEOUT => 10,
]);

for ($tries = 1; ; $tries++) {
    $asked = 0;
    $answer = curl_exec($curl);
    $status = $answer === false ? 0 : curl_getinfo($curl, CURLINFO_RESPONSE_CODE);
    if ($status === 202) {
        echo $answer, "\n";
        exit;
    }
    $can_help = in_array($status, [0, 408, 429], true) || $status >= 500;
    if (!$can_help || $tries === TRIES) {
        fwrite(STDERR, ($status ?: 'no answer') . ' ' . ($answer ?: curl_error($curl)) . "\n");
        exit(1);
    }
    // A random part of a wait that doubles, or longer where the answer asks for it.
    $seconds = max(mt_rand() / mt_getrandmax() * min($wait, 30), $asked);
    time_nanosleep((int) $seconds, (int) (fmod($seconds, 1) * 1e9));
    $wait *= 2;
}
