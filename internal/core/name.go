package core

import "unicode/utf8"

// MaxName is the longest name of a tenant, namespace, keyspace, collection or ruleset, in bytes.
const MaxName = 128

// ValidName reports whether s is a name: a letter or digit, then letters, digits, dots, underscores and hyphens, at most MaxName.
func ValidName(s string) bool {
	if s == "" || len(s) > MaxName {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// Cut returns s, or as much of its beginning as fits n bytes without cutting a character.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
