package main

import (
	"strings"

	"github.com/millrace/millrace/internal/server"
)

// insecureBare is the value of --insecure without one: the two listeners of clients. The admin
// listener asks for no token, so a user must name it explicitly.
const insecureBare = server.ListenerGRPC + "," + server.ListenerHTTP

// insecureValue is the flag that names the listeners which may use plain text on a public address.
// A configuration file may give a list. The flag was once a boolean: true is read as the flag
// without a value, and false as no listener.
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
