package main

import (
	"strings"

	"github.com/millrace/millrace/internal/server"
)

// insecureBare is what --insecure without a value means: the two listeners of clients. The admin listener asks for no token and
// needs its own name.
const insecureBare = server.ListenerGRPC + "," + server.ListenerHTTP

// insecureValue is the flag that names listeners which may be in plain text on a public address. In a configuration file it may be a
// list; true and false, which it was before it named listeners, are read as the flag without a value, and as none.
type insecureValue []string

// Set reads the names.
func (v *insecureValue) Set(s string) error {
	switch s {
	case "true":
		s = insecureBare
	case "false", "":
		*v = nil
		return nil
	}
	return (*listValue)(v).Set(s)
}

func (v *insecureValue) String() string { return strings.Join(*v, ",") }

// Type is the placeholder in help.
func (*insecureValue) Type() string { return "listeners" }

// Item reads one name of a list in a configuration file.
func (*insecureValue) Item(fields map[string]string) (string, error) {
	return new(listValue).Item(fields)
}
