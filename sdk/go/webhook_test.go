package millrace

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// webhookVector is a delivery and what a receiver makes of it.
type webhookVector struct {
	Name      string            `json:"name"`
	Secrets   []string          `json:"secrets"`
	Now       int64             `json:"now"`
	Tolerance int64             `json:"tolerance,omitempty"` // seconds; 0: the default
	Headers   map[string]string `json:"headers"`
	Body      string            `json:"body,omitempty"`
	Bytes     []byte            `json:"body_base64,omitempty"`
	Error     *webhookRefusal   `json:"error,omitempty"`
}

type webhookRefusal struct {
	Code  WebhookCode `json:"code"`
	Field string      `json:"field,omitempty"`
	Limit string      `json:"limit,omitempty"`
	Max   int64       `json:"max,omitempty"`
}

// verify carries out v.
func (v *webhookVector) verify() error {
	header := http.Header{}
	for name, value := range v.Headers {
		header.Set(name, value)
	}
	w := WebhookVerifier{Secrets: v.Secrets, Tolerance: time.Duration(v.Tolerance) * time.Second, Now: func() time.Time { return time.Unix(v.Now, 999) }}
	return w.Verify(header, append([]byte(v.Body), v.Bytes...))
}

const (
	webhookNow = 1_735_689_600
	testNow    = "1735689600"
	secretA    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secretB    = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	secretC    = "whsec_/////////////////////////////////////w=="
)

// signedBy is a signature of the version v1 by a secret.
func signedBy(secret, id, timestamp, body string) string {
	keys, err := webhookKeys([]string{secret})
	if err != nil {
		panic(err)
	}
	return "v1," + webhookSign(keys[0], id, timestamp, []byte(body))
}

// webhookMaker collects the cases of webhooks.json. A case begins as a delivery that is valid and is changed.
type webhookMaker struct{ vectors []any }

const (
	testID   = "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W"
	testBody = `{"type":"task.completed","data":{"id":"01M8F7WHD9001PH2PG1RNDHQZ3"}}`
)

func (m *webhookMaker) add(name string, refusal *webhookRefusal, change func(v *webhookVector)) {
	v := webhookVector{Name: name, Secrets: []string{secretA}, Now: webhookNow, Error: refusal}
	v.sign(secretA, testID, testNow, testBody)
	change(&v)
	m.vectors = append(m.vectors, v)
}

// sign makes v a delivery that a sender has signed.
func (v *webhookVector) sign(secret, id, timestamp, body string) {
	v.Body = body
	v.Headers = map[string]string{webhookID: id, webhookTimestamp: timestamp, webhookSignature: signedBy(secret, id, timestamp, body)}
}

// at is a delivery that was signed at a time.
func at(seconds int64) func(*webhookVector) {
	return func(v *webhookVector) { v.sign(secretA, testID, strconv.FormatInt(seconds, 10), testBody) }
}

// signatures is a delivery with these signatures.
func signatures(all ...string) func(*webhookVector) {
	return func(v *webhookVector) { v.Headers[webhookSignature] = strings.Join(all, " ") }
}

func (m *webhookMaker) valid() {
	good := signedBy(secretA, testID, testNow, testBody)
	m.add("valid", nil, func(*webhookVector) {})
	m.add("the example that libraries of the scheme are tested with", nil, func(v *webhookVector) {
		v.Now, v.Body = 1_614_265_330, `{"test": 2432232314}`
		v.Headers = map[string]string{
			webhookID: "msg_p5jXN8AQM9LWM0D4loKWxJek", webhookTimestamp: "1614265330",
			webhookSignature: "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
		}
	})
	m.add("a secret without its prefix", nil, func(v *webhookVector) { v.Secrets = []string{strings.TrimPrefix(secretA, "whsec_")} })
	m.add("two secrets, signed by the first", nil, func(v *webhookVector) { v.Secrets = []string{secretA, secretB} })
	m.add("two secrets, signed by the second", nil, func(v *webhookVector) { v.Secrets = []string{secretB, secretA} })
	m.add("a key of 28 bytes that has all bits", nil, func(v *webhookVector) {
		v.Secrets = []string{secretC}
		v.sign(secretC, testID, testNow, testBody)
	})
	m.add("a key that is longer than a block of SHA-256", nil, func(v *webhookVector) {
		v.Secrets = []string{"whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("key ", 20)))}
		v.sign(v.Secrets[0], testID, testNow, testBody)
	})
	m.add("several signatures, of which the last one matches", nil, signatures(signedBy(secretB, testID, testNow, testBody), "v1a,"+strings.Repeat("A", 86)+"==", good))
	m.add("spaces between signatures, before and after", nil, signatures("", "", good, "", signedBy(secretB, testID, testNow, testBody), ""))
	m.add("names of headers in other letters", nil, func(v *webhookVector) {
		v.Headers = map[string]string{"Webhook-Id": testID, "WEBHOOK-TIMESTAMP": testNow, "webhook-Signature": good}
	})
	m.add("a body of many alphabets", nil, func(v *webhookVector) { v.sign(secretA, testID, testNow, "{\"à\":\"日本 😀 \u2028 <&>\"}\r\n") })
	m.add("an empty body", nil, func(v *webhookVector) { v.sign(secretA, testID, testNow, "") })
	m.add("a body that is not text", nil, func(v *webhookVector) {
		v.sign(secretA, testID, testNow, "\x00\xff\xfe")
		v.Bytes, v.Body = []byte(v.Body), ""
	})
	m.add("a body with full stops", nil, func(v *webhookVector) { v.sign(secretA, testID, testNow, ".1.2.") })
	m.add("an id of one letter", nil, func(v *webhookVector) { v.sign(secretA, "a", testNow, testBody) })
}

func (m *webhookMaker) timed() {
	timed := func(code WebhookCode, most int64) *webhookRefusal {
		return &webhookRefusal{Code: code, Field: webhookTimestamp, Limit: "tolerance", Max: most}
	}
	m.add("as old as it may be", nil, at(webhookNow-300))
	m.add("as new as it may be", nil, at(webhookNow+300))
	m.add("as old as a tolerance of its own allows", nil, func(v *webhookVector) {
		v.Tolerance = 10
		at(webhookNow - 10)(v)
	})
	m.add("too old", timed(WebhookTooOld, 300), at(webhookNow-301))
	m.add("too new", timed(WebhookTooNew, 300), at(webhookNow+301))
	m.add("too old for a tolerance of its own", timed(WebhookTooOld, 10), func(v *webhookVector) {
		v.Tolerance = 10
		at(webhookNow - 11)(v)
	})
	m.add("too new for a tolerance of its own", timed(WebhookTooNew, 3600), func(v *webhookVector) {
		v.Tolerance = 3600
		at(webhookNow + 3601)(v)
	})
	m.add("of the first second of 1970", timed(WebhookTooOld, 300), at(0))
	m.add("of the last second that all languages count", timed(WebhookTooNew, 300), at(1<<53-1))
}

func (m *webhookMaker) altered() {
	good, noMatch := signedBy(secretA, testID, testNow, testBody), &webhookRefusal{Code: WebhookNoMatch}
	m.add("a body with one byte more", noMatch, func(v *webhookVector) { v.Body += "\n" })
	m.add("a body with one byte less", noMatch, func(v *webhookVector) { v.Body = v.Body[1:] })
	m.add("an empty body in place of another", noMatch, func(v *webhookVector) { v.Body = "" })
	m.add("another id", noMatch, func(v *webhookVector) { v.Headers[webhookID] = testID + "x" })
	m.add("another timestamp", noMatch, func(v *webhookVector) { v.Headers[webhookTimestamp] = strconv.Itoa(webhookNow + 1) })
	m.add("another secret", noMatch, func(v *webhookVector) { v.Secrets = []string{secretB, secretC} })
	m.add("signatures of other secrets", noMatch, signatures(signedBy(secretB, testID, testNow, testBody), signedBy(secretC, testID, testNow, testBody)))
	m.add("another version with the right signature", noMatch, signatures("v1a"+good[2:], "v2"+good[2:], "V1"+good[2:]))
	m.add("a signature without a version", noMatch, signatures(good[3:]))
	m.add("a signature without its padding", noMatch, signatures(strings.TrimRight(good, "=")))
	m.add("a signature with more after it", noMatch, signatures(good+"A", good+"="))
	m.add("the beginning of a signature", noMatch, signatures(good[:20]))
	m.add("commas between signatures", noMatch, signatures(good+","+good))
	m.add("a tab before a signature", noMatch, signatures("\t"+good))
	m.add("signatures that are nothing", noMatch, signatures("v1,", "v1", ",", "v1,,"))
	m.add("a signature that is not ASCII", noMatch, signatures("v1,ä", "v1,\u0661"))
}

func (m *webhookMaker) headers() {
	for _, name := range []string{webhookID, webhookTimestamp, webhookSignature} {
		missing := &webhookRefusal{Code: WebhookHeaderMissing, Field: name}
		m.add("without "+name, missing, func(v *webhookVector) { delete(v.Headers, name) })
		m.add("empty "+name, missing, func(v *webhookVector) { v.Headers[name] = "" })
	}
	m.add("without any header", &webhookRefusal{Code: WebhookHeaderMissing, Field: webhookID}, func(v *webhookVector) { v.Headers = map[string]string{} })
	m.add("an id with a full stop", &webhookRefusal{Code: WebhookHeaderInvalid, Field: webhookID}, func(v *webhookVector) {
		v.sign(secretA, testID+".1", testNow, testBody)
	})
	m.add("an id and a timestamp that are cut elsewhere", &webhookRefusal{Code: WebhookHeaderInvalid, Field: webhookID}, func(v *webhookVector) {
		v.sign(secretA, testID, testNow, testNow+".1")
		v.Headers[webhookID], v.Body = testID+"."+testNow, "1"
	})
	for _, text := range []string{
		"now", "-" + testNow, "+" + testNow, testNow + ".0", testNow + " ", " " + testNow, "0" + testNow, "1e9", "1_735_689_600", "0x67748580", "\u0661\u0667",
		"9007199254740992", "99999999999999999999999", "NaN", "2025-01-01T00:00:00Z", testNow + "\u0000",
	} {
		m.add("the timestamp "+text, &webhookRefusal{Code: WebhookHeaderInvalid, Field: webhookTimestamp}, func(v *webhookVector) { v.sign(secretA, testID, text, testBody) })
	}
}

func (m *webhookMaker) secrets() {
	invalid := func(name, field string, secrets ...string) {
		m.add(name, &webhookRefusal{Code: WebhookSecretInvalid, Field: field}, func(v *webhookVector) { v.Secrets = secrets })
	}
	invalid("no secrets", "secrets", []string{}...)
	invalid("an empty secret", "secrets[0]", "")
	invalid("a secret that is only the prefix", "secrets[1]", secretA, "whsec_")
	invalid("a secret that is not base64", "secrets[1]", secretA, "whsec_not base64!")
	invalid("a secret in the other alphabet of base64", "secrets[0]", "whsec_-_-_-_-_")
	invalid("a secret without its padding", "secrets[0]", strings.TrimRight(secretB, "="))
	invalid("a secret with the end of a line", "secrets[0]", secretA+"\n")
	invalid("a secret with the prefix twice", "secrets[0]", "whsec_"+secretA)
	invalid("a secret that is not ASCII", "secrets[0]", "whsec_äöüß")
}

const webhooksAbout = "Webhooks by Standard Webhooks, and what a receiver makes of each: it passes, or is refused with the code, the field, the limit and its value (seconds) that error says. now is the clock in unix seconds, tolerance is in seconds, 300 where it is absent. A body is text, or bytes as base64; it is empty where both are absent."

func TestWebhooksAreJudgedAsTheVectorsSay(t *testing.T) {
	var m webhookMaker
	m.valid()
	m.timed()
	m.altered()
	m.headers()
	m.secrets()
	checkVectors(t, "webhooks.json", webhooksAbout, map[string][]any{"vectors": m.vectors})
	var file struct{ Vectors []webhookVector }
	vectors(t, "webhooks.json", &file)
	if len(file.Vectors) == 0 {
		t.Fatal("the file has no vectors")
	}
	for _, v := range file.Vectors {
		err := v.verify()
		if v.Error == nil {
			if err != nil {
				t.Errorf("%s: %v", v.Name, err)
			}
			continue
		}
		e, ok := errors.AsType[*WebhookError](err)
		if !ok {
			t.Errorf("%s: %v, want %+v", v.Name, err, *v.Error)
			continue
		}
		if got := (webhookRefusal{e.Code, e.Field, e.Limit, e.Max}); got != *v.Error {
			t.Errorf("%s: %+v, want %+v", v.Name, got, *v.Error)
		}
		for _, secret := range v.Secrets {
			if secret != "" && strings.Contains(e.Error(), strings.TrimPrefix(secret, "whsec_")) && secret != "whsec_" {
				t.Errorf("%s: the message tells the secret: %v", v.Name, e)
			}
		}
	}
}

func TestAWebhookIsJudgedByTheClockOfThisMachine(t *testing.T) {
	const id, body = "msg_1", "{}"
	now := strconv.FormatInt(time.Now().Unix(), 10)
	header := http.Header{}
	header.Set(webhookID, id)
	header.Set(webhookTimestamp, now)
	header.Set(webhookSignature, signedBy(secretA, id, now, body))
	if err := VerifyWebhook(header, []byte(body), secretB, secretA); err != nil {
		t.Error(err)
	}
	if err := VerifyWebhook(header, []byte(body), secretB); err == nil {
		t.Error("a signature of another secret passes")
	}
}
