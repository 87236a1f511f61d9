package auth

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/env"
)

const (
	// tokenPrefix lets people and scanners of leaked secrets recognise a token.
	tokenPrefix = "mr_"
	// tokenBytes of randomness: with 256 bits no salt or slow hash is needed, because an attacker cannot try them all.
	tokenBytes = 32
	// hashPrefix names the hash, so that another can follow without a guess.
	hashPrefix = "sha256:"
)

// Generate returns a new token: mr_ and 43 characters of base64url. rnd must be fit for secrets.
func Generate(rnd env.Rand) string {
	var b [tokenBytes]byte
	rnd.Fill(b[:])
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// Hash returns what a token file stores of a token: sha256: and 64 hexadecimal digits.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hashPrefix + hex.EncodeToString(sum[:])
}

// errHash is the same for every text that is not a hash, so that a token pasted in its place is never repeated in a log.
var errHash = errors.New("a hash is sha256: and 64 hexadecimal digits")

// parseHash reads what Hash returns. The error never repeats the text.
func parseHash(s string) (sum [sha256.Size]byte, err error) {
	digits, ok := strings.CutPrefix(s, hashPrefix)
	if !ok || len(digits) != hex.EncodedLen(len(sum)) {
		return sum, errHash
	}
	if _, err := hex.Decode(sum[:], []byte(digits)); err != nil {
		return sum, errHash
	}
	return sum, nil
}

// checkName holds names of principals and tenants to letters, digits, dot, underscore and hyphen.
func checkName(field, s string) error {
	if s == "" {
		return fmt.Errorf("%s is missing", field)
	}
	if len(s) > 128 {
		return fmt.Errorf("%s is longer than 128 bytes", field)
	}
	for i := range len(s) {
		c := s[i]
		alnum := c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return fmt.Errorf("%s %q: use letters, digits, dot, underscore and hyphen", field, s)
		}
	}
	return nil
}
