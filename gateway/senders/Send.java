// Signs a JSON body and posts it to a Letterbox webhook; tries again where that can help.
// Needs Java 17 or later.
//
//   export WEBHOOK_URL=… WEBHOOK_SECRET=…
//   java Send.java body.json        # or, from standard input: java Send.java < body.json

import static java.nio.charset.StandardCharsets.UTF_8;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.Objects;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

public class Send {
    static final int TRIES = 6;

    public static void main(String[] args) throws Exception {
        byte[] body = args.length > 0
            ? Files.readAllBytes(Path.of(args[0]))
            : System.in.readAllBytes();
        HttpRequest request = HttpRequest.newBuilder(URI.create(setting("WEBHOOK_URL")))
            .version(HttpClient.Version.HTTP_1_1)
            .header("Content-Type", "application/json")
            .header("X-Service-Signature", sign(setting("WEBHOOK_SECRET"), body))
            .POST(HttpRequest.BodyPublishers.ofByteArray(body))
            .build();
        HttpClient client = HttpClient.newHttpClient(); // follows no redirects

        String firstWait = System.getenv().getOrDefault("RETRY_FIRST_WAIT", "1");
        double wait = Double.parseDouble(firstWait);
        for (int tries = 1; ; tries++) {
            int status = 0;
            long asked = 0;
            String answer;
            var sending = client.sendAsync(request, HttpResponse.BodyHandlers.ofString());
            try {
                HttpResponse<String> response = sending.get(10, TimeUnit.SECONDS);
                status = response.statusCode();
                asked = retryAfter(response);
                answer = response.body();
            } catch (ExecutionException | TimeoutException error) {
                sending.cancel(true);
                answer = error.toString();
            }
            if (status == 202) {
                System.out.println(answer);
                System.exit(0);
            }
            boolean canHelp = status == 0 || status == 408 || status == 429 || status >= 500;
            if (!canHelp || tries == TRIES) {
                System.err.println((status == 0 ? "no answer" : status) + " " + answer);
                System.exit(1);
            }
            // A random part of a wait that doubles, or longer where the answer asks for it.
            double seconds = Math.max(Math.random() * Math.min(wait, 30), asked);
            Thread.sleep((long) (1000 * seconds));
            wait *= 2;
        }
    }

    static String setting(String name) {
        return Objects.requireNonNull(System.getenv(name), name + " is not set");
    }

    /** The key is the text of the secret as it was shown, not what its digits stand for. */
    static String sign(String secret, byte[] body) throws Exception {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(secret.getBytes(UTF_8), "HmacSHA256"));
        return HexFormat.of().formatHex(mac.doFinal(body));
    }

    static long retryAfter(HttpResponse<?> response) {
        return response.headers().firstValue("Retry-After")
            .filter(value -> value.matches("[0-9]{1,9}"))
            .map(Long::parseLong)
            .orElse(0L);
    }
}
