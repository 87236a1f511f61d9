package config

import (
	"errors"
	"strconv"
	"strings"
	"testing"
)

func fill(t *testing.T, flag, env, file string) (listen string, shards int, err error) {
	t.Helper()
	settings := []Setting{
		{Name: "listen-address", Set: func(v string) error { listen = v; return nil }},
		{Name: "shards", Set: func(v string) (err error) {
			shards, err = strconv.Atoi(v)
			return err
		}},
	}
	if flag != "" {
		listen, settings[0].Done = flag, true
	}
	lookup := func(name string) (string, bool) {
		return env, name == "MILLRACE_LISTEN_ADDRESS" && env != ""
	}
	err = Fill(settings, "MILLRACE_", lookup, []byte(file))
	return listen, shards, err
}

func TestFlagWinsOverEnvironmentWinsOverFile(t *testing.T) {
	const file = "listen_address: from-file\nshards: 4\n"
	for _, c := range []struct{ flag, env, want string }{
		{"from-flag", "from-env", "from-flag"},
		{"", "from-env", "from-env"},
		{"", "", "from-file"},
	} {
		got, shards, err := fill(t, c.flag, c.env, file)
		if err != nil || got != c.want || shards != 4 {
			t.Errorf("flag %q, env %q: got %q, %d, %v; want %q, 4", c.flag, c.env, got, shards, err, c.want)
		}
	}
}

func TestUnreadableSettingsAreRefusedByName(t *testing.T) {
	for file, want := range map[string]string{
		"listen_addr: x":           "unknown key listen_addr",
		"shards: many":             "key shards",
		"shards: [1]":              "key shards",
		"shards: 1\nshards: 2":     "shards",
		"- a\n- b":                 "line 1: a mapping",
		"listen_address: \"broken": "read configuration file",
	} {
		_, _, err := fill(t, "", "", file)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v does not name %q", file, err, want)
		}
	}
	err := Fill([]Setting{{Name: "a", Set: func(string) error { return errors.New("bad") }}}, "X_",
		func(string) (string, bool) { return "v", true }, nil)
	if err == nil || !strings.Contains(err.Error(), "X_A") {
		t.Errorf("error %v does not name the variable", err)
	}
}
