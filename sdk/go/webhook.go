package millrace

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of a webhook.
const (
	webhookID        = "webhook-id"
	webhookTimestamp = "webhook-timestamp" // unix seconds
	webhookSignature = "webhook-signature" // signatures with spaces between, each a version, a comma and base64
)

// webhookTolerance is how far a timestamp may be from the clock where a verifier names no tolerance.
const webhookTolerance = 5 * time.Minute

// WebhookCode says why a webhook was refused. The set is closed.
type WebhookCode string

// The codes of a WebhookError.
const (
	WebhookHeaderMissing WebhookCode = "HEADER_MISSING" // Field is absent or empty
	WebhookHeaderInvalid WebhookCode = "HEADER_INVALID" // Field is a timestamp that is not a number, or an id with a full stop
	WebhookTooOld        WebhookCode = "TOO_OLD"        // by more than Max seconds
	WebhookTooNew        WebhookCode = "TOO_NEW"        // by more than Max seconds
	WebhookNoMatch       WebhookCode = "NO_MATCH"       // no signature was made with one of the secrets
	WebhookSecretInvalid WebhookCode = "SECRET_INVALID" // Field is a secret that cannot be used: the receiver is at fault
)

// WebhookError is why a webhook was refused.
type WebhookError struct {
	Code    WebhookCode
	Message string // for a person; it has no part of a secret
	Field   string // name of the header, or the place of the secret, such as secrets[1]; empty for WebhookNoMatch
	Limit   string // tolerance, for WebhookTooOld and WebhookTooNew
	Max     int64  // its value in seconds
}

// Error returns the code and the message.
func (e *WebhookError) Error() string { return string(e.Code) + ": " + e.Message }

// WebhookVerifier checks that a webhook was sent by one who knows a secret, and was sent now. It follows Standard Webhooks with
// symmetric signatures, which have the version v1; those of other versions are passed over. It may be used by many goroutines.
type WebhookVerifier struct {
	// Secrets are those of the sender, at least one: base64 of a key, with or without the prefix whsec_. One that matches is enough, so
	// that a sender may change from one to the next.
	Secrets []string
	// Tolerance is how far the timestamp may be from the clock, before or after, in whole seconds. Default: 5 minutes.
	Tolerance time.Duration
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// VerifyWebhook checks a webhook with a tolerance of 5 minutes. See WebhookVerifier.
func VerifyWebhook(header http.Header, body []byte, secrets ...string) error {
	return WebhookVerifier{Secrets: secrets}.Verify(header, body)
}

// Verify checks the headers of a request and its body, which must be the bytes as they came. The error is a *WebhookError. A webhook that
// is sent a second time passes again: a receiver that must not act twice remembers the header webhook-id.
func (v WebhookVerifier) Verify(header http.Header, body []byte) error {
	keys, err := webhookKeys(v.Secrets)
	if err != nil {
		return err
	}
	for _, name := range []string{webhookID, webhookTimestamp, webhookSignature} {
		if header.Get(name) == "" {
			return &WebhookError{Code: WebhookHeaderMissing, Field: name, Message: name + ": the header is missing"}
		}
	}
	id, timestamp := header.Get(webhookID), header.Get(webhookTimestamp)
	if strings.Contains(id, ".") { // it would blur where the id ends in what is signed
		return &WebhookError{Code: WebhookHeaderInvalid, Field: webhookID, Message: webhookID + ": must not have a full stop"}
	}
	if err := v.checkTime(timestamp); err != nil {
		return err
	}
	for _, key := range keys {
		want := []byte("v1," + webhookSign(key, id, timestamp, body))
		for given := range strings.SplitSeq(header.Get(webhookSignature), " ") {
			if hmac.Equal([]byte(given), want) {
				return nil
			}
		}
	}
	return &WebhookError{Code: WebhookNoMatch, Message: "no signature was made with one of the secrets"}
}

// checkTime judges the timestamp of a webhook by the clock.
func (v WebhookVerifier) checkTime(timestamp string) error {
	at, err := strconv.ParseUint(timestamp, 10, 53) // as many bits as clients in all languages have
	if err != nil || strconv.FormatUint(at, 10) != timestamp {
		return &WebhookError{Code: WebhookHeaderInvalid, Field: webhookTimestamp, Message: webhookTimestamp + ": must be unix seconds"}
	}
	now, tolerance := time.Now, webhookTolerance
	if v.Now != nil {
		now = v.Now
	}
	if v.Tolerance != 0 {
		tolerance = v.Tolerance
	}
	most := int64(tolerance / time.Second)
	code, word := WebhookTooOld, "old"
	age := now().Unix() - int64(at)
	if age < 0 {
		code, word, age = WebhookTooNew, "new", -age
	}
	if age <= most {
		return nil
	}
	return &WebhookError{
		Code: code, Field: webhookTimestamp, Limit: "tolerance", Max: most,
		Message: fmt.Sprintf("%s: %d s too %s", webhookTimestamp, age-most, word),
	}
}

// webhookKeys decodes secrets.
func webhookKeys(secrets []string) ([][]byte, error) {
	if len(secrets) == 0 {
		return nil, &WebhookError{Code: WebhookSecretInvalid, Field: "secrets", Message: "secrets: at least one is required"}
	}
	keys := make([][]byte, len(secrets))
	for i, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(key) == 0 || strings.ContainsAny(secret, "\r\n") { // the package reads past the ends of lines
			field := fmt.Sprintf("secrets[%d]", i)
			return nil, &WebhookError{Code: WebhookSecretInvalid, Field: field, Message: field + ": must be base64 of a key, perhaps after whsec_"}
		}
		keys[i] = key
	}
	return keys, nil
}

// webhookSign returns the base64 of the signature of a webhook.
func webhookSign(key []byte, id, timestamp string, body []byte) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(id + "." + timestamp + "."))
	h.Write(body)
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}
