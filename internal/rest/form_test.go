package rest

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/strictjson"
)

// fits returns a function that says whether a text has a form.
func (f Form) fits() func(s string) bool {
	pattern, not := regexp.MustCompile(f.Pattern), regexp.MustCompile(cmp.Or(f.Not, `$^x`))
	return func(s string) bool {
		n := int64(utf8.RuneCountInString(s))
		return pattern.MatchString(s) && !not.MatchString(s) && n >= f.MinLength && (f.MaxLength == 0 || n <= f.MaxLength) && (f.Words == nil || slices.Contains(f.Words, s))
	}
}

// texts are values of all kinds, from which tests choose what has a form and what has not.
var texts = []string{
	"queues,overview", "", "a", "0", "1", "-1", "01", "+1", "1.5", "18446744073709551615", "18446744073709551616", "9223372036854775808", "4294967296", "true", "exact", "any", "block", "query", "cut",
	"linearizable", "stale", "eligible", "convex", "A.b_c-d", "a:b", ":a", ".a", "a..b", "a.git", "a.lock", "a/b", "a b", "a\tb", "a\nb", "a\x00b", "a\x7fb", "ä", "日本", "\xff",
	"HEAD", "refs", "refs/", "refs/heads/main", "refs/heads/a..b", "refs/heads/.a", "refs/heads/a.lock", "refs/heads/a.lock/b", "refs/heads/@{", "refs//a", "refs/heads/a.",
	"refs/heads/a ~", "refs/heads/x*", "refs/heads/ä", "refs/" + strings.Repeat("a", 255), "refs/" + strings.Repeat("a", 256), "refs" + strings.Repeat("/a", 63), "refs" + strings.Repeat("/a", 64),
	strings.Repeat("a", 128), strings.Repeat("a", 129), strings.Repeat("a", 257), strings.Repeat("a", 1025), strings.Repeat("*", 16), strings.Repeat("*", 17),
	apitest.ID(1), strings.ToLower(apitest.ID(1)), strings.Repeat("0", 26), "8" + strings.Repeat("0", 25), "0000000000000000000000000U", apitest.OID, strings.ToUpper(apitest.OID), strings.Repeat("ab", 16),
	strings.Repeat("AB-", 16), "550e8400-e29b-41d4-a716-446655440000", "0/0", "0/88123", "00/1", "1/", "r@1", "r@0", "r@01", "r@4294967295", "r@4294967296", "@1", `"3"`, `"3`, `3"`, `""`, `W/"3"`,
	"6de323c4180fb94f", "0000000000000000", "90s", "1h30m", "1.5s", ".", "1", "1.2.3s", "s", "-5s", "AA==", "AAA=", "AAAA", "AB==", "AAB=", "A", "=", "YQ", "a_b", "a-b", "9a", "_",
}

// mutated makes more texts of them, by a generator with a fixed seed.
func mutated(n int) []string {
	rand := rand.New(rand.NewPCG(7, 9))
	const bytes = "aZ0._:-/@{}~^*[]\\ \t\x01\x7f=+lockgit"
	out := slices.Clone(texts)
	for range n {
		b := []byte(texts[rand.IntN(len(texts))])
		for range 1 + rand.IntN(3) {
			i := rand.IntN(len(b) + 1)
			switch c := bytes[rand.IntN(len(bytes))]; {
			case len(b) == 0 || rand.IntN(2) == 0:
				b = slices.Insert(b, i, c)
			default:
				b[i%len(b)] = c
			}
		}
		out = append(out, string(b))
	}
	return out
}

func TestTheFormsAreWhatIsRead(t *testing.T) {
	isFact := func(fact core.Fact) bool { return fact == nil }
	r := newRig(t, edge.Limits{})
	r.n.AddTask(t, "acme", apitest.ID(1)) // makes the namespace
	s := r.s
	// A call that names a thing well goes on until it is found that it has no caller.
	isRead := func(err error) bool { return edge.Is[core.Unauthenticated](err) }
	ctx := context.Background()
	l := defaults
	for name, c := range map[string]struct {
		form Form
		read func(string) bool
	}{
		"queue": {queueForm, func(s string) bool { return isFact(api.QueueName("", s)) }},
		"space": {spaceForm, func(s string) bool { return isFact(edge.SpaceName("", s)) }},
		"task":  {taskForm, func(id string) bool { _, err := s.Tasks().Get(ctx, &pb.GetRequest{Id: id}); return isRead(err) }},
		"repo": {repoForm, func(name string) bool {
			_, err := s.Refs().GetRepo(ctx, &pb.GetRepoRequest{Name: name})
			return isRead(err)
		}},
		"ref":      {refForm, func(s string) bool { return core.CheckRefName(s) == "" }},
		"ref path": {refPathForm, func(s string) bool { return core.CheckRefName("refs/"+s) == "" }},
		"branch":   {below("refs/heads/"), func(s string) bool { return core.CheckRefName("refs/heads/"+s) == "" }},
		"object":   {objectForm, func(s string) bool { _, err := core.ParseObjectID(s); return err == nil }},
		"repo id":  {repoIDForm, func(s string) bool { _, err := core.ParseRepoID(s); return err == nil }},
		"point": {pointForm, func(id string) bool {
			_, err := s.Searches().GetPoints(ctx, &pb.GetPointsRequest{Collection: "ws", Ids: []string{id}})
			return isRead(err)
		}},
		"version": {versionForm, func(version string) bool {
			who := edge.Caller{Principal: auth.Principal{Tenant: "acme", Scopes: auth.All}}
			out, err := s.Searches().DeletePoints(edge.WithCaller(ctx, who), &pb.DeletePointsRequest{
				Collection: "ws", Points: []*pb.PointVersion{{Id: "a", IfVersion: version}},
			})
			if err != nil {
				t.Fatal(err)
			}
			return version != "" && out.GetResults()[0].GetError().GetCode() != "INVALID_ARGUMENT"
		}},
		"ruleset": {rulesetForm, func(name string) bool {
			_, err := s.Searches().GetRuleset(ctx, &pb.GetRulesetRequest{Ruleset: name})
			return isRead(err)
		}},
		"text":   {plainText, func(s string) bool { return isFact(api.TextUpTo("", s, "", math.MaxInt64)) }},
		"number": {AnyUint64, func(s string) bool { _, wrong := strictjson.ParseUnsigned(s); return wrong == "" }},
		"token":  {tokenForm, func(s string) bool { n, wrong := strictjson.ParseUnsigned(s); return wrong == "" && n > 0 }},
		"base64": {Form{Pattern: base64s}, func(s string) bool {
			_, err := base64.StdEncoding.Strict().DecodeString(s)
			return err == nil && !strings.ContainsAny(s, "\r\n")
		}},
		"request": {requestIDForm, func(s string) bool {
			quoted, _ := json.Marshal(s)
			d := newJSONReader(quoted, l)
			d.requestID()
			return d.Fact() == nil
		}},
		"no nul": {AnyText, func(s string) bool {
			quoted, _ := json.Marshal(s)
			d := newJSONReader(quoted, l)
			d.Text()
			return d.Fact() == nil
		}},
	} {
		fits := c.form.fits()
		for _, s := range mutated(1000) {
			if utf8.ValidString(s) && fits(s) != c.read(s) {
				t.Errorf("%s: %q is of the form: %v, is read: %v", name, s, fits(s), c.read(s))
			}
		}
	}
	for _, top := range []uint64{9, 10, 99, 100, 128, 4095, 10_000, math.MaxUint32, math.MaxInt64, math.MaxUint64} {
		fits := (Form{Pattern: "^" + digitsUpTo(top) + "$"}).fits()
		for _, n := range []uint64{0, 1, top / 10, top / 2, top - 1, top, top + 1, top + 9, 2 * top} {
			s := strconv.FormatUint(n, 10)
			if got := fits(s); got != (n <= top) {
				t.Errorf("%s is at most %d: %v", s, top, got)
			}
		}
	}
}

func TestADurationOfTheFormIsRead(t *testing.T) {
	fits := (Form{Pattern: durations}).fits()
	for _, s := range mutated(3000) {
		if _, err := time.ParseDuration(s); fits(s) && err != nil {
			t.Errorf("%q is of the form, and not read", s)
		}
	}
	for _, s := range []string{"0", "90s", "1.5s", "1h30m", "250ms", "999999999ns"} {
		if !fits(s) {
			t.Errorf("%q is not of the form", s)
		}
	}
}

// examples chooses a text that has a form, and all that have not.
func (f Form) examples() (good string, bad []string) {
	fits := f.fits()
	for _, s := range append(slices.Clone(texts), f.Words...) {
		if !utf8.ValidString(s) {
			continue
		}
		if fits(s) {
			if s != "" || good == "" {
				good = s
			}
		} else {
			bad = append(bad, s)
		}
	}
	return good, bad
}

// paramForm is all that the document says of a parameter.
func paramForm(p Param) Form {
	f := p.Form
	if w := p.Words(); w != nil {
		f.Words = w
	}
	switch p.Type {
	case "duration":
		f.Pattern = durations
	case "time":
		f.Pattern = `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`
	}
	return f
}

// blames says whether an answer refuses a field for what it is.
func (a answer) blames(field string) bool {
	var body struct{ Error struct{ Field, Code string } }
	return json.Unmarshal([]byte(a.body), &body) == nil && (a.status == http.StatusBadRequest || a.status == http.StatusRequestEntityTooLarge) &&
		(body.Error.Field == field || strings.HasPrefix(body.Error.Field, field+"[") || strings.HasPrefix(body.Error.Field, field+"."))
}

func TestARouteRefusesAParameterThatIsNotOfItsForm(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	checked := 0
	eachRoute(t, func(rt *Route, s sampleRequest) {
		path, query, _ := strings.Cut(s.path, "?")
		for _, p := range slices.Concat(rt.Query, sharedParams) {
			form := paramForm(p)
			send := func(value string) answer {
				v, _ := url.ParseQuery(query)
				v.Set(p.Name, value)
				switch p.Name { // these go with others
				case "max_staleness":
					v.Set("consistency", "stale")
				case "after_rev":
					v.Set("sort", "moved")
					v.Set("after", "refs/heads/a")
				}
				return r.send(r.request(rt.Method, path+"?"+v.Encode(), "acme/all", s.body))
			}
			good, bad := form.examples()
			if p.Type == "time" {
				good = "2026-01-02T03:04:05Z"
			}
			field := p.Name
			if p.Name == "glob" {
				field = "globs"
			}
			if a := send(good); a.blames(field) && p.Name != "cursor" {
				t.Errorf("%s: %s=%q: %d %s", rt.name(), p.Name, good, a.status, a.body)
			}
			for _, value := range bad {
				checked++
				if a := send(value); a.status != http.StatusBadRequest && a.status != http.StatusRequestEntityTooLarge {
					t.Errorf("%s: %s=%.40q: %d %s", rt.name(), p.Name, value, a.status, a.body)
				}
			}
		}
		for i, name := range strings.Split(rt.Path, "/") {
			if !strings.HasPrefix(name, "{") {
				continue
			}
			name = strings.Trim(name, "{}")
			form := rt.PathForm(name)
			good, bad := form.examples()
			send := func(value string) answer {
				parts := strings.SplitN(path, "/", len(strings.Split(rt.Path, "/")))
				parts[i] = url.PathEscape(value)
				return r.send(r.request(rt.Method, strings.Join(parts, "/")+"?"+query, "acme/all", s.body))
			}
			if a := send(good); a.blames(name) {
				t.Errorf("%s: {%s} of %q: %d %s", rt.name(), name, good, a.status, a.body)
			}
			for _, value := range bad {
				if value == "" || value == "." || form.Pattern == "" {
					continue // another path
				}
				checked++
				if a := send(value); a.status/100 != 4 {
					t.Errorf("%s: {%s} of %.40q: %d %s", rt.name(), name, value, a.status, a.body)
				}
			}
		}
	})
	if checked < 1000 {
		t.Errorf("only %d values were tried", checked)
	}
}

// good makes a value of a schema, with no more than it requires.
func (c *contract) good(s schema, depth int) any {
	s = c.resolve(s)
	switch {
	case len(s.OneOf) > 0 && s.Type == nil:
		return c.good(s.OneOf[0], depth)
	case s.is("object"):
		out := make(map[string]any)
		names := slices.Clone(s.Required)
		for _, all := range s.AllOf {
			if len(all.OneOf) > 0 {
				names = append(names, all.OneOf[0].Required...)
			}
		}
		if s.MinProperties > 0 {
			names = append(names, slices.Sorted(maps.Keys(s.Properties))[0])
		}
		for _, name := range names {
			out[name] = c.good(s.Properties[name], depth+1)
		}
		return out
	case s.is("array"):
		if s.MinItems == 0 {
			return []any{}
		}
		return []any{c.good(*s.Items, depth+1)}
	case s.is("string") && len(s.Enum) > 0:
		return s.Enum[0]
	case s.is("string") && s.Format == "date-time":
		return "2026-01-02T03:04:05Z"
	case s.is("string"):
		text, _ := s.form().examples()
		return text
	case s.is("integer"), s.is("number"):
		return json.Number(cmp.Or(s.Minimum, "1"))
	case s.is("boolean"):
		return true
	}
	return "x"
}

func (s schema) form() Form {
	f := Form{Pattern: s.Pattern, MinLength: s.MinLength, MaxLength: s.MaxLength, Words: s.Enum}
	if s.Not != nil {
		f.Not = s.Not.Pattern
	}
	return f
}

// bad makes values that are not of a schema, by its words about texts, numbers and lists.
func (c *contract) bad(s schema) []any {
	var out []any
	switch {
	case s.is("array"):
		if s.MaxItems > 0 && s.MaxItems <= 1024 {
			out = append(out, slices.Repeat([]any{c.good(*s.Items, 0)}, int(s.MaxItems)+1))
		}
		if s.MinItems > 0 {
			out = append(out, []any{})
		}
	case s.is("string") && s.Format == "date-time":
		out = append(out, "", "yesterday", "2026-13-01T00:00:00Z")
	case s.is("string"):
		if _, all := s.form().examples(); s.Pattern != "" || s.Enum != nil {
			for _, text := range all {
				out = append(out, text)
			}
		}
		if s.MaxLength > 0 && s.MaxLength < 1<<20 {
			out = append(out, strings.Repeat("A", int(s.MaxLength)+4))
		}
	}
	for _, bound := range []struct {
		n    json.Number
		past int64
	}{{s.Minimum, -1}, {s.Maximum, 1}} {
		if n, err := bound.n.Int64(); err == nil && n != math.MaxInt64 && n != math.MinInt64 {
			out = append(out, json.Number(strconv.FormatInt(n+bound.past, 10)))
		}
	}
	return out
}

// eachField calls fn for every field that a schema may have, with what puts a value there into a body that is otherwise
// good, and the path by which errors name it.
func (c *contract) eachField(s schema, path string, depth int, put func(any) any, fn func(s schema, path string, put func(any) any)) {
	s = c.resolve(s)
	if len(s.OneOf) > 0 && s.Type == nil {
		for _, one := range s.OneOf {
			c.eachField(one, path, depth, put, fn)
		}
		return
	}
	if path != "" {
		fn(s, path, put)
	}
	if depth == 6 {
		return
	}
	if s.is("array") {
		c.eachField(*s.Items, path+"[0]", depth+1, func(v any) any { return put([]any{v}) }, fn)
	}
	for name, property := range s.Properties {
		into := func(v any) any {
			body, _ := c.good(s, 0).(map[string]any)
			if s.MinProperties > 0 {
				clear(body)
			}
			for _, all := range s.AllOf { // what stands there instead of the field
				for _, one := range all.OneOf {
					if slices.Contains(one.Required, name) {
						for _, other := range all.OneOf {
							delete(body, other.Required[0])
						}
					}
				}
			}
			body[name] = v
			return put(body)
		}
		c.eachField(property, strings.TrimPrefix(path+"."+name, "."), depth+1, into, fn)
	}
}

// laterChecked are fields that are judged by what is stored, which the rig does not have, and those whose form is more narrow
// than what is read.
var laterChecked = regexp.MustCompile(`(^|\.)(config|schema|text_fields|embedder|model|default_branch|factor|old|new|target|old_target|params|vector_upsert|decay|max_staleness)(\[|\.|$)|^name$|^node$|^schedule$|^zone$|^to_queue$|^patch$|^filter\.state$|changes\[0\]\.name|names\[0\]|_base64`)

func TestABodyRefusesAFieldThatIsNotOfItsForm(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	c := readContract(t)
	checked := 0
	eachRoute(t, func(rt *Route, s sampleRequest) {
		if rt.Body == "" {
			return
		}
		body := c.Paths[rt.Path][strings.ToLower(rt.Method)].RequestBody.Content["application/json"].Schema
		send := func(v any) answer {
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			return r.send(r.request(rt.Method, s.path, "acme/all", string(text)))
		}
		tried := make(map[string]bool)
		c.eachField(body, "", 0, func(v any) any { return v }, func(s schema, path string, put func(any) any) {
			key := path[strings.LastIndexByte(path, '.')+1:] + s.Pattern
			if laterChecked.MatchString(path) || tried[key] && strings.Count(path, ".") > 1 {
				return
			}
			tried[key] = true
			for i, value := range c.bad(s) {
				if i > 12 {
					break
				}
				checked++
				a := send(put(value))
				item := a.status == http.StatusOK && strings.Contains(a.body, `"error":{`) // of a list, of which each has an answer
				if a.status != http.StatusBadRequest && a.status != http.StatusRequestEntityTooLarge && !item {
					t.Errorf("%s: %s of %.60v: %d %.200s", rt.name(), path, value, a.status, a.body)
				}
			}
			if a := send(put(c.good(s, 0))); a.blames(path) {
				t.Errorf("%s: %s of %.60v: %d %.200s", rt.name(), path, c.good(s, 0), a.status, a.body)
			}
		})
	})
	if checked < 1000 {
		t.Errorf("only %d values were tried", checked)
	}
}

func TestEveryFormIsOfAFieldThatIsRead(t *testing.T) {
	c := readContract(t)
	text := string(mustJSON(t, c.Components.Schemas))
	for name := range FieldForms() {
		_, field, _ := strings.Cut(name, ".")
		if !strings.Contains(text, strconv.Quote(field)+":") {
			t.Errorf("%s is not in the document", name)
		}
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
