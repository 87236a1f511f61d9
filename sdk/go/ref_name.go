package millrace

import (
	"strings"
	"unicode/utf8"
)

// Limits of a name: of all of it and of a component in bytes, and of its components.
const (
	maxRefName       = 1024 // bytes
	maxRefComponent  = 255
	maxRefComponents = 64
)

// RefNameRule returns the rule that name breaks, or "" when it is a name of a ref: git's check-ref-format, and HEAD or
// below refs/, valid UTF-8, within the limits of length.
func RefNameRule(name string) (rule string) {
	switch {
	case name == "HEAD":
		return ""
	case name == "":
		return "it is empty"
	case len(name) > maxRefName:
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
		case n > maxRefComponents:
			return "it has more than 64 components"
		case part == "":
			return "it has an empty component"
		case part[0] == '.':
			return "a component starts with a dot"
		case strings.HasSuffix(part, ".lock"):
			return "a component ends with .lock"
		case len(part) > maxRefComponent:
			return "a component is longer than 255 bytes"
		}
	}
	return ""
}

// checkRefBytes returns the rule that a byte of name breaks, or that two neighbours do.
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
