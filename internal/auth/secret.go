package auth

import (
	"errors"
	"strings"
)

// errSecret says what is wrong with a secret, without a word of it.
var errSecret = errors.New("must be one word of ASCII: it holds white space, a control character, or one that is not ASCII")

// CleanSecret takes off the white space around a secret that comes from a file, the environment or a command line, where a line
// feed at the end is usual, and refuses one that no header can carry as it is.
func CleanSecret(s string) (string, error) {
	s = strings.TrimSpace(s)
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return "", errSecret
		}
	}
	return s, nil
}
