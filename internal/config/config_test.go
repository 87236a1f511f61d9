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
	environ := []string{"HOME=/"}
	if env != "" {
		environ = append(environ, "MILLRACE_LISTEN_ADDRESS="+env)
	}
	err = Fill(settings, "MILLRACE_", environ, []byte(file))
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
		[]string{"X_A=v"}, nil)
	if err == nil || !strings.Contains(err.Error(), "X_A") {
		t.Errorf("error %v does not name the variable", err)
	}
}

func TestAVariableThatIsNoSettingIsRefused(t *testing.T) {
	settings := []Setting{{Name: "grace", Set: func(string) error { return nil }}, {Name: "listen", Done: true}}
	for environ, want := range map[string]string{
		"X_GRACE=5s X_LISTEN=a": "",
		"X_GRCE=5s":             "unknown environment variable X_GRCE",
		"X_GRACE=5s X_grace=5s": "unknown environment variable X_grace",
		"X_GRACE_MS=5":          "unknown environment variable X_GRACE_MS",
		"X_=5":                  "unknown environment variable X_",
		"X_B=1 X_A=1":           "unknown environment variable X_A",
		"XX_GRCE=5 Y_X_GRCE=5":  "",
		"X_GRCE=":               "unknown environment variable X_GRCE",
		"X_PORT=tcp://10.0.0.1:80 X_PORT_80_TCP_ADDR=10.0.0.1 X_SERVICE_HOST=10.0.0.1 X_SERVICE_PORT=80": "",
	} {
		err := Fill(settings, "X_", strings.Fields(environ), nil)
		if err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%s: %v, want %q", environ, err, want)
		}
	}
}
