package main

import (
	"errors"
	"strings"
)

// listValue is a flag that takes words, separated by commas. A configuration file may give a list.
type listValue []string

// Set reads the flag.
func (v *listValue) Set(s string) error {
	*v = nil
	if s == "" {
		return nil
	}
	for word := range strings.SplitSeq(s, ",") {
		*v = append(*v, strings.TrimSpace(word))
	}
	return nil
}

// String shows the flag.
func (v *listValue) String() string { return strings.Join(*v, ",") }

// Type names what the flag takes.
func (*listValue) Type() string { return "words" }

// Item reads one word of the list in a configuration file.
func (*listValue) Item(fields map[string]string) (string, error) {
	// A plain word of a YAML list has an empty name. A comma would split it into two words.
	word, ok := fields[""]
	if !ok || len(fields) != 1 || strings.Contains(word, ",") {
		return "", errors.New("a word is wanted")
	}
	return word, nil
}
