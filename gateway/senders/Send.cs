// Signs a JSON body and posts it to a Letterbox webhook; tries again where that can help.
//
//   export WEBHOOK_URL=… WEBHOOK_SECRET=…
//   dotnet run Send.cs -- body.json                              # .NET 10 or later, or:
//   mcs -r:System.Net.Http Send.cs && mono Send.exe body.json    # Mono
// Without body.json, the body is read from standard input.

using System;
using System.Globalization;
using System.IO;
using System.Net.Http;
using System.Net.Http.Headers;
using System.Security.Cryptography;
using System.Text;
using System.Threading.Tasks;

static class Send
{
    const int Tries = 6;

    static int Main(string[] args)
    {
        return Run(args).GetAwaiter().GetResult();
    }

    static async Task<int> Run(string[] args)
    {
        var url = new Uri(Setting("WEBHOOK_URL"));
        var body = args.Length > 0 ? File.ReadAllBytes(args[0]) : ReadStandardInput();
        var handler = new HttpClientHandler { AllowAutoRedirect = false };
        var client = new HttpClient(handler) { Timeout = TimeSpan.FromSeconds(10) };
        client.DefaultRequestHeaders.ExpectContinue = false;
        client.DefaultRequestHeaders.Add(
            "X-Service-Signature", Sign(Setting("WEBHOOK_SECRET"), body));

        var firstWait = Environment.GetEnvironmentVariable("RETRY_FIRST_WAIT") ?? "1";
        var wait = double.Parse(firstWait, CultureInfo.InvariantCulture);
        var random = new Random();
        for (var tries = 1; ; tries++)
        {
            var status = 0;
            var asked = TimeSpan.Zero;
            string answer;
            try
            {
                // A client disposes of what it has sent.
                var content = new ByteArrayContent(body);
                content.Headers.ContentType = new MediaTypeHeaderValue("application/json");
                using (var response = await client.PostAsync(url, content))
                {
                    status = (int)response.StatusCode;
                    asked = response.Headers.RetryAfter?.Delta ?? TimeSpan.Zero;
                    answer = await response.Content.ReadAsStringAsync();
                }
            }
            catch (Exception error) when (
                error is HttpRequestException || error is TaskCanceledException)
            {
                answer = error.GetBaseException().Message;
            }
            if (status == 202)
            {
                Console.WriteLine(answer);
                return 0;
            }
            var canHelp = status == 0 || status == 408 || status == 429 || status >= 500;
            if (!canHelp || tries == Tries)
            {
                Console.Error.WriteLine(
                    "{0} {1}", status == 0 ? "no answer" : status.ToString(), answer);
                return 1;
            }
            // A random part of a wait that doubles, or longer where the answer asks for it.
            var seconds = Math.Max(
                random.NextDouble() * Math.Min(wait, 30), asked.TotalSeconds);
            await Task.Delay(TimeSpan.FromSeconds(seconds));
            wait *= 2;
        }
    }

    /// The key is the text of the secret as it was shown, not what its digits stand for.
    static string Sign(string secret, byte[] body)
    {
        using (var hmac = new HMACSHA256(Encoding.UTF8.GetBytes(secret)))
        {
            var signature = BitConverter.ToString(hmac.ComputeHash(body));
            return signature.Replace("-", "").ToLowerInvariant();
        }
    }

    static string Setting(string name)
    {
        return Environment.GetEnvironmentVariable(name)
            ?? throw new InvalidOperationException(name + " is not set");
    }

    static byte[] ReadStandardInput()
    {
        using (var input = Console.OpenStandardInput())
        using (var bytes = new MemoryStream())
        {
            input.CopyTo(bytes);
            return bytes.ToArray();
        }
    }
}
