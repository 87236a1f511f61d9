package rest

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/strictjson"
)

// readTasks reads a batch, which holds most of what can be wrong with a body.
func readTasks(l *edge.Limits, body string) (*pb.BatchCreateRequest, core.Fact) {
	m := new(pb.BatchCreateRequest)
	fact := decodeJSON([]byte(body), l, m, batchCreateRequestFields)
	return m, fact
}

func TestJSONThatIsNotExactlyRightIsRefusedByItsPath(t *testing.T) {
	l := defaultLimits(t)
	task := func(fields string) string { return `{"tasks":[{"queue":"q"},{` + fields + `}]}` }
	for name, c := range map[string]struct{ body, field, message string }{
		"nothing":                      {``, "body", "malformed"},
		"white space":                  {" \n", "body", "malformed"},
		"a list":                       {`[]`, "body", "must be an object"},
		"null":                         {`null`, "body", "must be an object"},
		"cut short":                    {`{"tasks":[{"queue":"q"`, "tasks[0]", "malformed"},
		"cut in a string":              {`{"tasks":[{"queue":"q`, "tasks[0].queue", "malformed"},
		"cut in an escape":             {`{"tasks":[{"queue":"q\u00`, "tasks[0].queue", "malformed"},
		"a comma too many":             {`{"atomic":true,}`, "body", "malformed"},
		"a comma too few":              {`{"atomic":true "tasks":[]}`, "body", "malformed"},
		"no colon":                     {`{"atomic" true}`, "body", "malformed"},
		"a name without quotes":        {`{atomic:true}`, "body", "malformed"},
		"a comment":                    {`{"atomic":true} // yes`, "body", "after the end"},
		"a second document":            {`{"atomic":true}{}`, "body", "after the end"},
		"a byte order mark":            {"\ufeff{}", "body", "malformed"},
		"an unknown field":             {`{"task":[]}`, "task", "not known"},
		"a field of another case":      {`{"Atomic":true}`, "Atomic", "not known"},
		"an unknown field below":       {task(`"que":"q"`), "tasks[1].que", "not known"},
		"a repeated field":             {`{"atomic":true,"atomic":true}`, "atomic", "only once"},
		"a field repeated by escapes":  {`{"atomic":true,"\u0061tomic":true}`, "atomic", "only once"},
		"a repeated field below":       {task(`"unique":{"key":"a","key":"a"}`), "tasks[1].unique.key", "only once"},
		"a boolean as text":            {`{"atomic":"true"}`, "atomic", "true or false"},
		"null for a boolean":           {`{"atomic":null}`, "atomic", "true or false"},
		"a number as text":             {task(`"priority":"3"`), "tasks[1].priority", "an integer"},
		"text as a number":             {task(`"queue":3`), "tasks[1].queue", "a string"},
		"null for text":                {task(`"queue":null`), "tasks[1].queue", "a string"},
		"an object for a list":         {`{"tasks":{}}`, "tasks", "a list"},
		"a list for an object":         {task(`"unique":[]`), "tasks[1].unique", "an object"},
		"a fraction":                   {task(`"priority":1.0`), "tasks[1].priority", "an integer"},
		"an exponent":                  {task(`"priority":1e0`), "tasks[1].priority", "an integer"},
		"a leading zero":               {task(`"priority":01`), "tasks[1].priority", "malformed"},
		"a plus":                       {task(`"priority":+1`), "tasks[1].priority", "malformed"},
		"a lone minus":                 {task(`"priority":-`), "tasks[1].priority", "malformed"},
		"hexadecimal":                  {task(`"priority":0x1`), "tasks[1]", "malformed"},
		"infinity":                     {task(`"retry":{"factor":1e999}`), "tasks[1].retry.factor", "out of range"},
		"not a number":                 {task(`"retry":{"factor":NaN}`), "tasks[1].retry.factor", "malformed"},
		"a negative priority":          {task(`"priority":-1`), "tasks[1].priority", "out of range"},
		"more than 32 bits":            {task(`"max_attempts":2147483648`), "tasks[1].max_attempts", "out of range"},
		"more than 64 bits":            {task(`"max_attempts":9223372036854775808`), "tasks[1].max_attempts", "out of range"},
		"far more than 64 bits":        {task(`"max_attempts":` + strings.Repeat("9", 400)), "tasks[1].max_attempts", "out of range"},
		"NUL as it is":                 {task("\"queue\":\"a\x00\""), "tasks[1].queue", "malformed"},
		"NUL escaped":                  {task(`"queue":"a\u0000"`), "tasks[1].queue", "NUL"},
		"NUL between values":           {"{\x00}", "body", "malformed"},
		"a control character":          {task("\"queue\":\"a\n\""), "tasks[1].queue", "malformed"},
		"an unknown escape":            {task(`"queue":"\x"`), "tasks[1].queue", "malformed"},
		"no UTF-8":                     {task("\"queue\":\"\xff\""), "tasks[1].queue", "UTF-8"},
		"no UTF-8 in a payload":        {task("\"payload\":{\"a\":\"\xc3\"}"), "tasks[1].payload", "UTF-8"},
		"half a surrogate pair":        {task(`"queue":"\ud800"`), "tasks[1].queue", "surrogate"},
		"the other half":               {task(`"queue":"\udc00x"`), "tasks[1].queue", "surrogate"},
		"two first halves":             {task(`"queue":"\ud800\ud800"`), "tasks[1].queue", "surrogate"},
		"no base64":                    {task(`"payload_base64":"a"`), "tasks[1].payload_base64", "base64"},
		"base64 of an URL":             {task(`"payload_base64":"_-8="`), "tasks[1].payload_base64", "base64"},
		"base64 with a rest":           {task(`"payload_base64":"QR=="`), "tasks[1].payload_base64", "base64"},
		"a payload twice":              {task(`"payload":1,"payload_base64":"QQ=="`), "tasks[1].payload_base64", "only once"},
		"JSON of another type":         {task(`"payload":1,"content_type":"text/plain"`), "tasks[1].payload", "base64"},
		"a broken payload":             {task(`"payload":{"a":}`), "tasks[1].payload", "malformed"},
		"no duration":                  {task(`"delay":"soon"`), "tasks[1].delay", "duration"},
		"a duration without unit":      {task(`"delay":"90"`), "tasks[1].delay", "duration"},
		"a duration as a number":       {task(`"delay":90`), "tasks[1].delay", "a string"},
		"a duration beyond all":        {task(`"delay":"9999999999h"`), "tasks[1].delay", "duration"},
		"no time":                      {task(`"run_at":"tomorrow"`), "tasks[1].run_at", "RFC 3339"},
		"a time without zone":          {task(`"run_at":"2030-01-02T03:04:05"`), "tasks[1].run_at", "RFC 3339"},
		"no word of the set":           {task(`"retry":{"backoff":"never"}`), "tasks[1].retry.backoff", "one of fixed, linear"},
		"an empty word":                {task(`"retry":{"backoff":""}`), "tasks[1].retry.backoff", "one of"},
		"a word in capitals":           {task(`"unique":{"key":"k","on_conflict":"RETURN"}`), "tasks[1].unique.on_conflict", "one of"},
		"what is reserved":             {task(`"webhook":null`), "tasks[1].webhook", "not supported"},
		"a broken value of no field":   {task(`"unique":tru`), "tasks[1].unique", "malformed"},
		"garbage in a list of strings": {task(`"headers":[1]`), "tasks[1].headers[0]", "an object"},
	} {
		_, fact := readTasks(l, c.body)
		f, ok := fact.(core.Invalid)
		if !ok || f.Field != c.field || !strings.Contains(f.Message, c.message) {
			t.Errorf("%s: %s\n got %#v\nwant %q in field %q", name, c.body, fact, c.message, c.field)
		}
	}
}

func TestNestingIsBounded(t *testing.T) {
	l := defaultLimits(t)
	deep := func(n int) string { // within body, tasks and task
		return `{"tasks":[{"queue":"q","payload":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}]}`
	}
	if _, fact := readTasks(l, deep(61)); fact != nil {
		t.Errorf("at the limit: %v", fact)
	}
	_, fact := readTasks(l, deep(62))
	if f, ok := fact.(core.OutOfRange); !ok || f.Limit != "json_depth" || f.Max != 64 || f.Field != "tasks[0].payload" {
		t.Errorf("beyond the limit: %#v", fact)
	}
	if _, fact := readTasks(l, strings.Repeat("[", 1_000_000)); fact == nil {
		t.Error("a million brackets were accepted")
	}
}

func TestListsEndAtTheirLimitBeforeTheyAreHeld(t *testing.T) {
	l := defaultLimits(t)
	body := `{"tasks":[` + strings.TrimSuffix(strings.Repeat("{},", 513), ",") + `]}`
	m, fact := readTasks(l, body)
	if f, ok := fact.(core.TooLarge); !ok || f.Limit != "frame_items" || f.Field != "tasks" || len(m.GetTasks()) != 512 {
		t.Errorf("%d tasks, %#v", len(m.GetTasks()), fact)
	}
}

func TestIntegersOf64BitsAreExact(t *testing.T) {
	l := defaultLimits(t)
	for _, number := range []string{"9007199254740993", `"9007199254740993"`, ` "9007199254740993" `} {
		m := new(pb.HeartbeatRequest)
		if fact := decodeJSON([]byte(`{"items":[{"id":"x","token":`+number+`}]}`), l, m, heartbeatRequestFields); fact != nil {
			t.Fatal(fact)
		}
		if got := m.GetItems()[0].GetToken(); got != 9007199254740993 {
			t.Errorf("%s became %d", number, got)
		}
	}
	m := new(pb.HeartbeatRequest)
	if fact := decodeJSON([]byte(`{"items":[{"token":18446744073709551615}]}`), l, m, heartbeatRequestFields); fact != nil || m.GetItems()[0].GetToken() != 1<<64-1 {
		t.Errorf("the largest: %v, %v", m, fact)
	}
	for _, number := range []string{"18446744073709551616", "-1", "1.0", `"1.0"`, `"-1"`, `"+1"`, `"01"`, `""`, `" 1"`, `"0x1"`, `"1_0"`, "true", "null"} {
		fact := decodeJSON([]byte(`{"items":[{"token":`+number+`}]}`), l, new(pb.HeartbeatRequest), heartbeatRequestFields)
		if f, ok := fact.(core.Invalid); !ok || f.Field != "items[0].token" {
			t.Errorf("%s: %v", number, fact)
		}
	}
	c := new(pb.NamespaceConfig)
	if fact := decodeJSON([]byte(`{"retain_bytes":9223372036854775807}`), l, c, namespaceConfigFields); fact != nil || c.GetRetainBytes() != 1<<63-1 {
		t.Errorf("%v, %v", c, fact)
	}
}

func TestPayloadsAreKeptByteForByte(t *testing.T) {
	l := defaultLimits(t)
	for _, payload := range []string{
		`{"b":1,  "a" : [ 1 , 2 ],"b":2}`, `12345678901234567890.10e+5`, `"\u0000\ud800 <é>\/"`, `null`, `[ ]`, "{\n\t\"z\":\r\n{}}", `-0`, `""`,
	} {
		m, fact := readTasks(l, `{"tasks":[{"queue":"q", "payload" :  `+payload+"\n }]}")
		if fact != nil || string(m.GetTasks()[0].GetPayload()) != payload {
			t.Errorf("%s became %s (%v)", payload, m.GetTasks()[0].GetPayload(), fact)
		}
	}
	m, fact := readTasks(l, `{"tasks":[{"queue":"q","payload_base64":"AP\/+","content_type":"x/y"},{"queue":"q","payload_base64":""},{"queue":"q"}]}`)
	if fact != nil || string(m.GetTasks()[0].GetPayload()) != "\x00\xff\xfe" || len(m.GetTasks()[1].GetPayload())+len(m.GetTasks()[2].GetPayload()) != 0 {
		t.Errorf("%v (%v)", m, fact)
	}
}

func TestJSONIsKnownByItsType(t *testing.T) {
	for s, want := range map[string]bool{
		"": true, "application/json": true, "Application/JSON": true, "application/json; charset=utf-8": true,
		"application/problem+json": true, "application/vnd.x+json;v=1": true,
		"text/json": false, "application/jsonp": false, "application/octet-stream": false, "json": false, "/": false,
	} {
		if got := jsonType(s); got != want {
			t.Errorf("%q: %v", s, got)
		}
	}
}

func FuzzJSONReader(f *testing.F) {
	l := defaultLimits(f)
	for _, body := range []string{
		`{"queue":"q","payload":{"a":[1,2.5e-3,null,"\u00e9\ud834\udd1e"]},"headers":[{"name":"n","value":"v"}],"delay":"90s"}`,
		`{"queue":"q","unique":{"key":"k","ttl":"1h","on_conflict":"reject"},"retry":{"backoff":"fixed","factor":1.5},"run_at":"2030-01-02T03:04:05Z"}`,
		`{"token":"12","effects":{"ops":[{"kv_put":{"keyspace":"k","key_base64":"AA==","value":"v","if_rev":9007199254740993}}]},"result":[]}`,
		`{"ops":[{"task_create":{"queue":"q"}},{"kv_check":{"keyspace":"k","key":"a","compare":"equal","rev":1}}],"request_id":"00000000-0000-4000-8000-000000000001"}`,
		`{"queues":["a",{"name":"b","weight":2}],"max":128,"wait":"60s"}`, "[", `{"a`, `{"queue":"\ud800"}`, "{}\x00", strings.Repeat("[", 70),
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := newJSONReader(b, l)
		spec := readTaskSpec(d)
		d.End()
		if d.Fact() == nil {
			again := newJSONReader(b, l)
			if !proto.Equal(spec, readTaskSpec(again)) {
				t.Error("one body was read in two ways")
			}
			if p := spec.GetPayload(); len(p) > 0 && !strings.Contains(string(b), "payload_base64") && !json.Valid(p) {
				t.Errorf("a payload that is not JSON: %q", p)
			}
		}
		// What this reader takes is JSON to others as well.
		if strictjson.IsJSON(b, l.JSONDepth) && (!json.Valid(b) || !utf8.Valid(b)) {
			t.Errorf("%q is not JSON", b)
		}
		commit, claim, settle := new(pb.CommitRequest), new(pb.ClaimRequest), new(pb.SettleRequest)
		for _, fact := range []core.Fact{
			decodeJSON(b, l, commit, commitRequestFields), decodeJSON(b, l, claim, claimRequestFields), decodeJSON(b, l, settle, settleRequestFields),
			decodeJSON(b, l, new(pb.QueueConfig), queueConfigFields),
		} {
			if fact == nil && !json.Valid(b) {
				t.Errorf("%q was read, and is not JSON", b)
			}
		}
	})
}
