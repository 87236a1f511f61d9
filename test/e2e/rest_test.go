package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/test/chaos/proc"
)

// web speaks REST to one server.
type web struct {
	t       *testing.T
	address string
	token   string
	client  *http.Client // nil: a connection of its own for each request
}

// serveWeb starts the real binary; serving tells where it serves REST now.
func serveWeb(t *testing.T, flags ...string) (s *proc.Server, serving func() web) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ready")
	s = serveWith(t, append(flags, "--ready-file", file, "--admin", "off")...)
	return s, func() web {
		t.Helper()
		b, err := os.ReadFile(file)
		noErr(t, err)
		var l listeners
		noErr(t, json.Unmarshal(b, &l))
		if l.HTTP == "" {
			t.Fatalf("the ready file says %s", b)
		}
		return web{t: t, address: l.HTTP, token: s.Tokens[0].Secret}
	}
}

// call makes one request and returns status and body.
func (w web) call(method, path, body string) (int, string) {
	w.t.Helper()
	header := [][2]string{{"Authorization", "Bearer " + w.token}}
	if strings.HasPrefix(path, "/v1/session") && body != "" {
		header = append(header, [2]string{"Content-Type", "application/json"})
	}
	return w.curl(curl{method: method, url: "http://" + w.address + path, body: body, header: header})
}

func (w web) curl(c curl) (int, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(bounded(w.t, time.Minute), c.method, c.url, strings.NewReader(c.body))
	noErr(w.t, err)
	for _, h := range c.header {
		req.Header.Add(h[0], h[1])
	}
	client := w.client
	if client == nil {
		client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	}
	resp, err := client.Do(req)
	noErr(w.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	noErr(w.t, err)
	return resp.StatusCode, string(b)
}

func TestATaskIsMadeClaimedCompletedAndReadOverREST(t *testing.T) {
	t.Parallel()
	s, serving := serveWeb(t)
	w := serving()
	expect := func(method, path, body string, status int) map[string]json.RawMessage {
		t.Helper()
		code, answer := w.call(method, path, body)
		var fields map[string]json.RawMessage
		if err := json.Unmarshal([]byte(answer), &fields); code != status || err != nil {
			t.Fatalf("%s %s: %d %s (%v)", method, path, code, answer, err)
		}
		return fields
	}
	made := expect("POST", "/v1/tasks", `{"queue":"mail","payload":{"b":1, "a":9007199254740993}}`, 201)
	var given struct {
		Tasks []struct {
			ID, Token string
			Payload   json.RawMessage
		}
	}
	code, answer := w.call("POST", "/v1/tasks:claim", `{"queues":["mail"],"wait":"30s"}`)
	noErr(t, json.Unmarshal([]byte(answer), &given))
	if code != 200 || len(given.Tasks) != 1 || `"`+given.Tasks[0].ID+`"` != string(made["id"]) || string(given.Tasks[0].Payload) != `{"b":1, "a":9007199254740993}` {
		t.Fatalf("claim: %d %s", code, answer)
	}
	task := "/v1/tasks/" + given.Tasks[0].ID
	expect("POST", task+"/complete", `{"token":"`+given.Tasks[0].Token+`","result":{"z":1, "y":2}}`, 200)
	read := expect("GET", task, "", 200)
	if string(read["state"]) != `"completed"` || string(read["result"]) != `{"z":1, "y":2}` {
		t.Errorf("read: %v", read)
	}
	s.Kill()
	if _, err := s.Start(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, logOf(s))
	}
	w = serving()
	if again := expect("GET", task+"/result?wait=5s", "", 200); string(again["done"]) != "true" || string(again["result"]) != `{"z":1, "y":2}` {
		t.Errorf("after a kill: %v", again)
	}
}

// curl is one command of the page.
type curl struct {
	method, url, body string
	header            [][2]string
}

// parseCurl understands the curl that the page uses: -s, -X, -H, -d and an address.
func parseCurl(t *testing.T, words []string) curl {
	t.Helper()
	c := curl{method: http.MethodGet}
	for i := 1; i < len(words); i++ {
		switch words[i] {
		case "-s":
		case "-X":
			i++
			c.method = words[i]
		case "-H":
			i++
			name, value, _ := strings.Cut(words[i], ": ")
			c.header = append(c.header, [2]string{name, value})
		case "-d":
			i++
			c.body = words[i]
			if c.method == http.MethodGet {
				c.method = http.MethodPost
			}
		default:
			if c.url != "" || strings.HasPrefix(words[i], "-") {
				t.Fatalf("this test does not know %q of %q", words[i], words)
			}
			c.url = words[i]
		}
	}
	return c
}

// shellWords splits a command as a shell does, as far as quotes and variables go.
func shellWords(line string, variables map[string]string) []string {
	var out []string
	var word strings.Builder
	quote, begun := byte(0), false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote == 0 && (c == ' ' || c == '\n'):
			if begun {
				out = append(out, word.String())
			}
			word.Reset()
			begun = false
			continue
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case c == quote:
			quote = 0
		case c == '$' && quote != '\'':
			name := variable.FindString(line[i+1:])
			word.WriteString(variables[name])
			i += len(name)
		default:
			word.WriteByte(c)
		}
		begun = true
	}
	return append(out, word.String())
}

var (
	variable = regexp.MustCompile(`^[A-Z]+`)
	block    = regexp.MustCompile("(?s)```(sh|json)\n(.*?)```")
	command  = regexp.MustCompile(`(?m)^(curl|millrace|[A-Z]+=)`)
	// What a server tells of a queue once it has sampled it, which takes 10 s.
	sampled = regexp.MustCompile(`,"rates":\{[^}]*\}|,"spark":\[[^\]]*\]`)
	firstID = regexp.MustCompile(`"id":"([0-9A-Z]{26})"`)
)

// TestThePageOnRESTIsTrue runs the commands of docs/start/rest.md and compares their answers with those on the page.
func TestThePageOnRESTIsTrue(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/start/rest.md")
	noErr(t, err)
	_, serving := serveWeb(t)
	w := serving()
	variables := map[string]string{"API": "http://" + w.address, "AUTH": "Authorization: Bearer " + w.token}
	var answers []string
	ran := 0
	for _, m := range block.FindAllStringSubmatch(string(page), -1) {
		if m[1] == "json" {
			wanted := strings.Split(strings.TrimSpace(m[2]), "\n")
			if len(wanted) != len(answers) {
				t.Fatalf("%d answers on the page for %d commands: %s", len(wanted), len(answers), m[2])
			}
			for i, want := range wanted {
				if got := sampled.ReplaceAllString(answers[i], ""); !like(want, got) {
					t.Errorf("the page says\n%s\nand the server\n%s", want, got)
				}
			}
			answers = nil
			continue
		}
		starts := command.FindAllStringIndex(m[2], -1)
		for i, at := range starts {
			end := len(m[2])
			if i+1 < len(starts) {
				end = starts[i+1][0]
			}
			text := strings.TrimSpace(m[2][at[0]:end])
			if !strings.HasPrefix(text, "curl ") {
				continue // the server runs already, and the variables are this test's
			}
			_, answer := w.curl(parseCurl(t, shellWords(text, variables)))
			answers = append(answers, strings.TrimSpace(answer))
			ran++
			if id := firstID.FindStringSubmatch(answer); id != nil && variables["ID"] == "" {
				variables["ID"] = id[1]
			}
		}
	}
	if ran < 10 || len(answers) != 0 {
		t.Errorf("%d commands were run, and %d answers are not on the page", ran, len(answers))
	}
}

// like says whether a text is what the page has, in which … stands for anything.
func like(want, have string) bool {
	parts := strings.Split(want, "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("(?s)^" + strings.Join(parts, ".*") + "$").MatchString(have)
}
