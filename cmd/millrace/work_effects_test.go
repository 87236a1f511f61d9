package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

// effectsOf reads a file of these lines.
func effectsOf(t *testing.T, text string) (*millrace.Tx, []int, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "effects")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	tx := (&millrace.Task{ID: millrace.NewID()}).Effects()
	lines, err := readEffects(name, tx)
	return tx, lines, err
}

func TestLinesOfAnEffectsFileAreReadAsServersReadThem(t *testing.T) {
	for _, line := range []string{
		`{"op":"kv_put","keyspace":"k","key":"a","value":""}`,
		`{"op":"kv_put","keyspace":"k","key_base64":"AP8=","value_base64":"/wA=","if_rev":"18446744073709551615"}`,
		`{"op":"kv_put","keyspace":"k","key":"a","value":"\ud83d\ude00","if_absent":true}`,
		`{"op":"kv_add","keyspace":"k","key":"a","delta":-9223372036854775808,"floor":0,"ceiling":9}`,
		`{"op":"kv_delete","keyspace":"k","key":"a","if_rev":0}`,
		`{"op":"kv_delete_range","keyspace":"k","prefix":"a/"}`,
		`{"op":"kv_delete_range","keyspace":"k","from":"a"}`,
		`{"op":"kv_delete_range","keyspace":"k","all":true}`,
		`{"op":"ref_update","repo":"r","ref":"refs/heads/a","old":"","new":"5ab7000000000000000000000000000000000000"}`,
		`{"op":"vector_upsert","collection":"c","id":"a","payload":{"text":"x"},"vector":[1,2.5],"model":"m"}`,
		`{"op":"task_create","queue":"q","payload":{"a": 1,  "b":"<&>"},"priority":9,"delay":"5m","headers":[{"name":"a","value":"b"}]}`,
		`{"op":"task_create","queue":"q","payload_base64":"AP8=","content_type":"image/png","max_attempts":3,"lease":"2m","max_run":"1h"}`,
		`{"op":"task_create","queue":"q","payload":null,"run_at":"2030-01-02T03:04:05Z","unique":{"key":"a","ttl":"1h","on_conflict":"reject"}}`,
		`{"op":"task_create","queue":"q","labels":{"env":"prod","order":"7"},"expires_at":"2030-01-02T03:04:05Z"}`,
		`{"op":"task_create","queue":"q","key":"ann","cost":3,"limiters":["a","b"],"batch":"01M8F7WHD9001PH2PG1RNDHQZ3"}`,
		`{"op":"task_cancel","id":"01M8F7WHD9001PH2PG1RNDHQZ3","reason":"twice","force":true}`,
		`{"op":"queue_pause","queue":"q","until":"2030-01-02T03:04:05Z","reason":"full"}`,
		`{"op":"queue_pause","queue":"q","resume":true}`,
		`{"op":"batch_open","tag":"user/7","labels":{"env":"prod"},"on_done":{"queue":"q","payload":{"a": 1}},"on_success":{"queue":"q","priority":3}}`,
		`{"op":"batch_seal","id":"01M8F7WHD9001PH2PG1RNDHQZ3"}`,
		`{"op":"batch_cancel","id":"01M8F7WHD9001PH2PG1RNDHQZ3","reason":"twice","rate":10,"force":true}`,
		` {"op" : "vector_delete", "collection" : "c", "id" : "a"} ` + "\r",
	} {
		if tx, lines, err := effectsOf(t, "\n"+line+"\n"); err != nil || tx.Len() != 1 || len(lines) != 1 || lines[0] != 2 {
			t.Errorf("%s: %d effects of lines %v, %v", line, tx.Len(), lines, err)
		}
	}
}

// TestATestOfAHandlerShowsEffectsAsCommandsWriteThem: what every SDK shows is one form, which is that of lines.
func TestATestOfAHandlerShowsEffectsAsCommandsWriteThem(t *testing.T) {
	b, err := os.ReadFile("../../proto/conformance/effects.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Effects, Batches []json.RawMessage }
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Effects) == 0 || len(file.Batches) == 0 {
		t.Fatal("there are no effects")
	}
	file.Effects = append(file.Effects, file.Batches...)
	job := millrace.Job[string, string]("j")
	got := millrace.RunHandler(t.Context(), job, func(_ context.Context, task *millrace.Task, _ string) (string, error) {
		for _, line := range file.Effects {
			if err := readEffect(line, task.Effects()); err != nil {
				return "", fmt.Errorf("%s: %w", line, err)
			}
		}
		return "", nil
	}, "", nil)
	if got.Err != nil || len(got.Effects) != len(file.Effects) {
		t.Fatalf("got %d effects of %d, %v", len(got.Effects), len(file.Effects), got.Err)
	}
	for i, line := range file.Effects {
		if got, want := sortedJSON(t, got.Effects[i]), sortedJSON(t, line); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// sortedJSON is a JSON object with its fields in order, and its numbers as they are written.
func sortedJSON(t *testing.T, line []byte) string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestLinesOfAnEffectsFileThatNoServerTakesAreRefused(t *testing.T) {
	for line, want := range map[string]string{
		`{"op":"kv_put","keyspace":"k","key":"a","value":"1","value":"2"}`:   `"value" is given twice`,
		`{"op":"kv_put","op":"kv_put","keyspace":"k","key":"a","value":"1"}`: `"op" is given twice`,
		`{"op":"task_create","queue":"q","payload":{"a":1,"a":2}}`:           `"a" is given twice`,
		`{"op":"kv_put","keyspace":"k","Key":"a","value":"1"}`:               "key is required",
		`{"op":"batch_open","on_done":{"payload":1}}`:                        "on_done: queue is required",
		`{"op":"batch_open","id":"01M8F7WHD9001PH2PG1RNDHQZ3","tag":"t"}`:    "id and tag are mutually exclusive",
		`{"op":"batch_seal"}`: "id is required",
		`{"op":"batch_cancel","id":"01M8F7WHD9001PH2PG1RNDHQZ3","rate":-1}`:          "rate",
		`{"op":"task_create","queue":"q","limiters":"a"}`:                            "limiters must be an array of strings",
		`{"op":"task_create","queue":"q","cost":0}`:                                  "cost must be 1 to 1,000,000",
		`{"op":"kv_put","keyspace":"k","key":"a","value":"1","VALUE":"2"}`:           `unknown field "VALUE"`,
		`{"op":"kv_put","keyspace":"k","key":"a","value":1}`:                         "value must be a string",
		`{"op":"kv_put","keyspace":"k","key":"a","value":null}`:                      "value must be a string",
		`{"op":"kv_put","keyspace":null,"key":"a","value":""}`:                       "keyspace must be a string",
		`{"op":"kv_put","keyspace":"k","key":"a"}`:                                   "value is required",
		`{"op":"kv_put","keyspace":"k","key":"a","value":"1","value_base64":"MQ=="}`: "mutually exclusive",
		`{"op":"kv_put","keyspace":"k","key":"a","value_base64":"MQ"}`:               "base64 with padding",
		`{"op":"kv_put","keyspace":"k","key":"a","value_base64":"MR=="}`:             "base64 with padding",
		`{"op":"kv_put","keyspace":"k","key":"a","value":"1","if_rev":1.5}`:          "if_rev must be an integer",
		`{"op":"kv_put","keyspace":"k","key":"a","value":"1","if_rev":-1}`:           "if_rev must be an integer",
		`{"op":"kv_put","keyspace":"k","key":"a","value":"1","if_rev":"01"}`:         "if_rev must be an integer",
		`{"op":"kv_put","keyspace":"k","key":"a","value":"1","if_absent":"yes"}`:     "true or false",
		"{\"op\":\"kv_put\",\"keyspace\":\"k\",\"key\":\"a\",\"value\":\"\xff\"}":    "must be UTF-8",
		`{"op":"kv_put","keyspace":"k","key":"a","value":"\ud83d"}`:                  "surrogate",
		`{"op":"kv_put","keyspace":"k","key":"a","value":"\ude00\ud83d"}`:            "surrogate",
		`{"op":"kv_put","keyspace":"k","key":"a","value":"1"} {"op":"kv_put"}`:       "nothing behind it",
		`{"op":"kv_put","keyspace":"k","key":"a","value":"1"}}`:                      "nothing behind it",
		`[{"op":"kv_put"}]`: "must be a JSON object",
		`null`:              "must be a JSON object",
		`{"op":"kv_put"`:    "must be JSON",
		"\ufeff" + `{"op":"kv_delete","keyspace":"k"}`: "must be JSON",
		`{"keyspace":"k"}`:                         "op is required",
		`{"op":"task_complete"}`:                   `unknown op "task_complete"`,
		`{"op":"kv_add","keyspace":"k","key":"a"}`: "delta is required",
		`{"op":"kv_add","keyspace":"k","key":"a","delta":9223372036854775808}`:          "64 bits",
		`{"op":"kv_delete_range","keyspace":"k"}`:                                       "prefix is required",
		`{"op":"kv_delete_range","keyspace":"k","prefix":""}`:                           "must not be empty",
		`{"op":"kv_delete_range","keyspace":"k","from":"","to":"b"}`:                    "must not be empty",
		`{"op":"kv_delete_range","keyspace":"k","prefix":"a","to":"b"}`:                 "mutually exclusive",
		`{"op":"kv_delete_range","keyspace":"k","prefix":"a","all":true}`:               "mutually exclusive",
		`{"op":"task_create","queue":"q","after":[{"id":"a","on":"start"}]}`:            "completed or terminal",
		`{"op":"task_create","queue":"q","after":[{"on":"terminal"}]}`:                  "id is required",
		`{"op":"task_create","queue":"q","on_dep_failure":"x"}`:                         "hold, cancel or run",
		`{"op":"task_create","payload":1}`:                                              "queue is required",
		`{"op":"task_create","queue":"q","payload":1,"payload_base64":""}`:              "mutually exclusive",
		`{"op":"task_create","queue":"q","priority":10}`:                                "0 to 9",
		`{"op":"task_create","queue":"q","delay":"1h","run_at":"2030-01-02T03:04:05Z"}`: "mutually exclusive",
		`{"op":"task_create","queue":"q","delay":"1 hour"}`:                             "must be a duration",
		`{"op":"task_create","queue":"q","unique":{"key":"a","til":"start"}}`:           `unique: unknown field "til"`,
		`{"op":"task_create","queue":"q","unique":{"ttl":"1h"}}`:                        "unique: key is required",
		`{"op":"task_create","queue":"q","headers":[{"name":"a"}]}`:                     "value is required",
		`{"op":"task_create","queue":"q","max_attempts":0}`:                             "1 or more",
		`{"op":"task_create","queue":"q","labels":{"a":1}}`:                             "labels: a must be a string",
		`{"op":"task_create","queue":"q","labels":[]}`:                                  "labels must be an object",
		`{"op":"task_cancel"}`: "id is required",
		`{"op":"task_cancel","id":"a","until":"2030-01-02T03:04:05Z"}`:       `unknown field "until"`,
		`{"op":"queue_pause","queue":"q","until":"soon"}`:                    "RFC 3339",
		`{"op":"queue_pause","queue":"q","resume":true,"reason":"x"}`:        "mutually exclusive",
		`{"op":"vector_upsert","collection":"c","id":"a","vector":[1,null]}`: "32-bit",
		`{"op":"vector_upsert","collection":"c","id":"a","vector":[1e39]}`:   "32-bit",
	} {
		_, _, err := effectsOf(t, "\n\n"+line)
		if _, ok := errors.AsType[effectsFault](err); !ok || !strings.Contains(err.Error(), "line 3") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want a fault of line 3: %s", line, err, want)
		}
	}
}

func TestAnEffectsFileIsBounded(t *testing.T) {
	line := `{"op":"kv_add","keyspace":"k","key":"a","delta":1}` + "\n"
	for _, tc := range []struct{ name, text, want string }{
		{"as many lines as a commit has room for besides the completion", strings.Repeat(line, 1023), ""},
		{"one line more", strings.Repeat(line, 1024), "at most 1023 lines"},
		{"as many bytes", strings.Repeat("\n", 4<<20), ""},
		{"one byte more", strings.Repeat("\n", 4<<20+1), "at most 4194304 bytes"},
	} {
		_, _, err := effectsOf(t, tc.text)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
}

// TestWhatIsInThePlaceOfAnEffectsFileIsNotWaitedFor: a command may put anything there.
func TestWhatIsInThePlaceOfAnEffectsFileIsNotWaitedFor(t *testing.T) {
	for name, put := range map[string]func(name string) error{
		"nothing":       func(string) error { return nil },
		"a directory":   func(name string) error { return os.Mkdir(name, 0o700) },
		"a pipe":        func(name string) error { return syscall.Mkfifo(name, 0o600) },
		"a link":        func(name string) error { return os.Symlink("/etc/hostname", name) },
		"a broken link": func(name string) error { return os.Symlink("/nowhere", name) },
		"a device":      func(name string) error { return os.Symlink("/dev/zero", name) },
		"a file there":  func(name string) error { return os.Remove(filepath.Dir(name)) },
	} {
		file := filepath.Join(t.TempDir(), "dir", "effects")
		if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := put(file); err != nil {
			t.Fatal(err)
		}
		_, err := readEffects(file, (&millrace.Task{ID: millrace.NewID()}).Effects())
		if _, ok := errors.AsType[effectsFault](err); !ok {
			t.Errorf("%s: got %v, want the command's fault", name, err)
		}
	}
}

// FuzzEffects: no file ends or holds up the worker, and what is taken is what one reader of JSON after another reads alike.
func FuzzEffects(f *testing.F) {
	for _, s := range []string{
		`{"op":"kv_put","keyspace":"k","key":"a","value":"1"}`,
		`{"op":"kv_add","keyspace":"k","key_base64":"AP8=","delta":-1,"floor":0}`,
		`{"op":"kv_delete_range","keyspace":"k","prefix":"a/"}`,
		`{"op":"ref_update","repo":"r","ref":"refs/heads/a","old":"","new":""}`,
		`{"op":"vector_upsert","collection":"c","id":"a","payload":{"t":"\ud83d\ude00"},"vector":[1,2.5],"model":"m"}`,
		`{"op":"task_create","queue":"q","payload":[1,{"a":null}],"unique":{"key":"a","ttl":"1h"},"headers":[{"name":"a","value":"b"}]}`,
		"\n{}\n\n[[{\"a\":1,\"a\":2}]]",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		name := filepath.Join(t.TempDir(), "effects")
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		tx := (&millrace.Task{ID: millrace.NewID()}).Effects()
		lines, err := readEffects(name, tx)
		if _, fault := errors.AsType[effectsFault](err); err != nil && !fault {
			t.Errorf("%q: got %v, want no error, or a fault of the command", b, err)
		}
		if err == nil && len(lines) != tx.Len() {
			t.Errorf("%q: %d effects of %d lines", b, tx.Len(), len(lines))
		}
	})
}
