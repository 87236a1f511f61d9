package core

import (
	"strings"
	"unicode/utf8"
)

// Limits of the parts of a ref's name, and of a repository's name.
const (
	MaxRefComponent  = 255 // bytes between two slashes
	MaxRefComponents = 64
	MaxRepoName      = 128 // bytes
)

// CheckRefName returns the rule that name breaks, or "" when it is a name of a ref: git's check-ref-format, and HEAD or
// below refs/, valid UTF-8, within the limits of length.
func CheckRefName(name string) (rule string) {
	switch {
	case name == "HEAD":
		return ""
	case name == "":
		return "it is empty"
	case len(name) > MaxRefName:
		return "it is longer than 1024 bytes"
	case !strings.HasPrefix(name, "refs/"):
		return "it is not HEAD and not below refs/"
	case name[len(name)-1] == '.':
		return "it ends with a dot"
	case !utf8.ValidString(name):
		return "it is not valid UTF-8"
	}
	if rule := checkRefBytes(name); rule != "" {
		return rule
	}
	n := 0
	for part := range strings.SplitSeq(name, "/") {
		switch n++; {
		case n > MaxRefComponents:
			return "it has more than 64 components"
		case part == "":
			return "it has an empty component"
		case part[0] == '.':
			return "a component starts with a dot"
		case strings.HasSuffix(part, ".lock"):
			return "a component ends with .lock"
		case len(part) > MaxRefComponent:
			return "a component is longer than 255 bytes"
		}
	}
	return ""
}

// checkRefBytes returns the rule that a byte of name breaks, alone or with the byte before it, or "".
func checkRefBytes(name string) (rule string) {
	for i := range len(name) {
		c := name[i]
		switch c {
		case ' ', '~', '^', ':', '?', '*', '[', '\\':
			return "it has a space or one of ~^:?*[\\"
		case '.':
			if i > 0 && name[i-1] == '.' {
				return "it has two dots in a row"
			}
		case '{':
			if i > 0 && name[i-1] == '@' {
				return "it has @{"
			}
		}
		if c < ' ' || c == 0x7f {
			return "it has a control byte"
		}
	}
	return ""
}

// CheckRepoName returns the rule that name breaks, or "" when it is a name of a repository: a letter or digit, then at
// most 127 letters, digits, dots, underscores and hyphens, without two dots in a row and not ending in .git or .lock.
func CheckRepoName(name string) (rule string) {
	if name == "" || len(name) > MaxRepoName {
		return "it has 1 to 128 characters"
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return "it starts with a letter or digit, and goes on with letters, digits, dots, underscores and hyphens"
		}
	}
	switch {
	case strings.Contains(name, ".."):
		return "it has two dots in a row"
	case strings.HasSuffix(name, ".git"), strings.HasSuffix(name, ".lock"):
		return "it ends in .git or .lock"
	}
	return ""
}

// IsBranch reports whether a ref may point to commits only: HEAD and all below refs/heads/.
func IsBranch(name string) bool { return name == "HEAD" || strings.HasPrefix(name, "refs/heads/") }
