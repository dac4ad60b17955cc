// Signs a JSON body and posts it to a Letterbox webhook; tries again where that can help.
//
//	export WEBHOOK_URL=… WEBHOOK_SECRET=…
//	go run send.go body.json        # or, from standard input: go run send.go < body.json
package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand"
	"net/http"
	"os"
	"strconv"
	"time"
)

const tries = 6

var client = http.Client{
	Timeout: 10 * time.Second,
	CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	},
}

// post returns the status (0 if none came), the answer, and the seconds that it asks to wait.
func post(url string, body []byte, signature string) (int, string, float64) {
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Service-Signature", signature)
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error(), 0
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error(), 0
	}
	asked, _ := strconv.ParseUint(response.Header.Get("Retry-After"), 10, 32)
	return response.StatusCode, string(answer), float64(asked)
}

func setting(name string) string {
	value := os.Getenv(name)
	if value == "" {
		log.Fatal(name, " is not set")
	}
	return value
}

func main() {
	log.SetFlags(0)
	url, secret := setting("WEBHOOK_URL"), setting("WEBHOOK_SECRET")
	wait, err := strconv.ParseFloat(os.Getenv("RETRY_FIRST_WAIT"), 64)
	if err != nil {
		wait = 1
	}
	input := os.Stdin
	if len(os.Args) > 1 {
		if input, err = os.Open(os.Args[1]); err != nil {
			log.Fatal(err)
		}
	}
	body, err := io.ReadAll(input)
	if err != nil {
		log.Fatal(err)
	}

	// The key is the text of the secret as it was shown, not what its digits stand for.
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	signature := hex.EncodeToString(mac.Sum(nil))

	random := rand.New(rand.NewSource(time.Now().UnixNano()))
	for try := 1; ; try++ {
		status, answer, asked := post(url, body, signature)
		if status == 202 {
			fmt.Println(answer)
			return
		}
		canHelp := status == 0 || status == 408 || status == 429 || status >= 500
		if !canHelp || try == tries {
			if status == 0 {
				log.Fatalln("no answer", answer)
			}
			log.Fatalln(status, answer)
		}
		// A random part of a wait that doubles, or longer where the answer asks for it.
		seconds := math.Max(random.Float64()*math.Min(wait, 30), asked)
		time.Sleep(time.Duration(seconds * float64(time.Second)))
		wait *= 2
	}
}
