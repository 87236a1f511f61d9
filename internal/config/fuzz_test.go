package config

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// filled is what a file sets: a text, a number and a list of nodes. A text that is absent stays as it was.
type filled struct{ text, number, peers string }

func fillAll(file []byte) (filled, error) {
	got := filled{text: "as it was", number: "0"}
	err := Fill([]Setting{
		{Name: "some-text", Set: func(v string) error { got.text = v; return nil }},
		{Name: "number", Set: func(v string) error {
			n, err := strconv.Atoi(v)
			got.number = strconv.Itoa(n)
			return err
		}},
		{Name: "peers", Item: PeerItem, Set: func(v string) error {
			_, err := ParsePeers(v)
			got.peers = v
			return err
		}},
	}, "X_", nil, file)
	return got, err
}

func TestAFileOfSettingsIsUnderstoodAsAWholeOrRefused(t *testing.T) {
	for file, want := range map[string]string{
		"some_text: a\n---\nsome_text: b\n":   "it must have one YAML document",
		"some_text: a\n---\nunknown: b\n":     "it must have one YAML document",
		"---\n---\nsome_text: a\n":            "it must have one YAML document",
		"some_text: a\n...\nrubbish: [\n":     "it must have one YAML document",
		"? [some_text]\n: a\n":                "line 1: a key must be the name of a setting",
		"? {a: b}\n: a\n":                     "line 1: a key must be the name of a setting",
		"<<: {some_text: a}\n":                "unknown key <<",
		"some_text: &x a\nnumber: *x\n":       "key number",
		"number: ~\n":                         "key number",
		strings.Repeat("# more\n", maxFile/6): "at most 1048576",
	} {
		if got, err := fillAll([]byte(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %+v, %v, want %q", file, got, err, want)
		}
	}
	for file, text := range map[string]string{
		"some_text: ~": "", "some_text: null": "", "some_text:": "", "some_text: \"null\"": "null", "some_text: '~'": "~", "some_text: 0x10": "0x10",
		"---\nsome_text: a\n...\n": "a", "# nothing\n": "as it was", "---\n": "as it was", "~": "as it was",
	} {
		if got, err := fillAll([]byte(file)); err != nil || got.text != text {
			t.Errorf("%q: %q, %v, want %q", file, got.text, err, text)
		}
	}
}

func TestAFileOfEmbeddersIsUnderstoodAsAWholeOrRefused(t *testing.T) {
	const one = "embedders: [{name: a, kind: lexical}]\n"
	for file, want := range map[string]string{
		one + "---\n" + one:                         "it must have one YAML document",
		one + "---\nembeders: []\n":                 "it must have one YAML document",
		one + "...\nrubbish: [\n":                   "it must have one YAML document",
		one + strings.Repeat("# more\n", maxFile/6): "at most 1048576",
	} {
		if got, err := ParseEmbedders([]byte(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %+v, %v, want %q", file, got, err, want)
		}
	}
	if got, err := ParseEmbedders([]byte("---\n" + one + "...\n")); err != nil || len(got) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// FuzzFile reads what is given as a file of settings and as one of embedders. All of a file that is taken was understood: it
// has one document with known keys only, as another reading of it says too, and what it sets, written as a plain file, sets
// the same.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		"", "some_text: a\nnumber: 4\n", "peers:\n- {id: 1, address: \"a:1\", api: \"a:2\", http: \"a:3\"}\n- {id: 2, address: \"b:1\", api: \"b:2\"}\n",
		"peers: 1=a:1/a:2,2=b:1/b:2\n", "some_text: ~", "some_text: !!binary aGk=", "some_text: |\n  two\n  lines\n", "a: b\n---\nc: d\n", "? [x]\n: y\n",
		"some_text: &x a\nnumber: *x", "<<: {number: 1}", "{some_text: \"\\u00e9\\0\"}", "number: 0x1F", "embedders:\n- name: default\n  kind: lexical\n",
		"embedders: [{name: a, kind: tei, url: \"http://h\", dim: 3, timeout: 5s, batch: 8}, {name: b, kind: openai, key_env: K}]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		if len(file) > 64<<10 {
			return
		}
		if got, err := fillAll(file); err == nil {
			checkKeys(t, file, "some_text", "number", "peers")
			plain := map[string]any{"some_text": got.text, "number": got.number}
			if got.peers != "" {
				plain["peers"] = got.peers
			}
			again, err := yaml.Marshal(plain)
			if err != nil {
				t.Fatal(err)
			}
			if twice, err := fillAll(again); err != nil || twice != got {
				t.Errorf("%q sets %+v, written as %q it sets %+v, %v", file, got, again, twice, err)
			}
		}
		list, err := ParseEmbedders(file)
		if err != nil {
			return
		}
		checkKeys(t, file, "embedders")
		again, err := yaml.Marshal(map[string]any{"embedders": list})
		if err != nil {
			t.Fatal(err)
		}
		twice, err := ParseEmbedders(again)
		if err != nil || len(twice) != len(list) {
			t.Fatalf("%q: %+v is read as %+v, %v", file, list, twice, err)
		}
		for i := range list {
			if list[i] != twice[i] || list[i].Name == "" || list[i].KeyEnv != "" && list[i].KeyFile != "" {
				t.Errorf("%q: %+v is read as %+v", file, list[i], twice[i])
			}
		}
	})
}

// checkKeys reads a file in the plainest way and holds its keys to those that are known.
func checkKeys(t *testing.T, file []byte, known ...string) {
	t.Helper()
	d := yaml.NewDecoder(bytes.NewReader(file))
	for documents := 0; ; documents++ {
		var keys map[string]yaml.Node
		err := d.Decode(&keys)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil || documents > 0 {
			t.Errorf("%q was taken: document %d, %v", file, documents, err)
			return
		}
		for _, k := range known {
			delete(keys, k)
		}
		if len(keys) > 0 {
			t.Errorf("%q was taken: it has unknown keys %v", file, keys)
		}
	}
}
