package strictjson

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func TestAnyObjectIsReadWithItsWholeNumbersWhole(t *testing.T) {
	got, fact := ParseObject([]byte(` {"n":9007199254740993,"f":1.5,"big":1e3,"t":"é\u0000","l":[true,null,{"a":[]}]} `), 8)
	want := map[string]any{
		"n": int64(9007199254740993), "f": 1.5, "big": 1000.0, "t": "é\x00", "l": []any{true, nil, map[string]any{"a": []any{}}},
	}
	if fact != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v (%v), want %v", got, fact, want)
	}
}

func TestAnyObjectThatIsNotExactlyRightIsRefused(t *testing.T) {
	for text, message := range map[string]string{
		``: "malformed", `[]`: "an object", `null`: "an object", `{"a":1}x`: "after the end", `{"a":1,"a":2}`: "only once",
		`{"a":[1,]}`: "malformed", `{"a":nul}`: "malformed", `{"a":tru}`: "malformed", `{"a":"\ud800"}`: "surrogate", "{\"a\":\"\xff\"}": "UTF-8",
		`{"a":1e999}`: "out of range", `{"a":01}`: "malformed", `{"a"`: "malformed",
	} {
		got, fact := ParseObject([]byte(text), 8)
		f, ok := fact.(core.Invalid)
		if !ok || !strings.Contains(f.Message, message) || got != nil {
			t.Errorf("%s: %v, %#v, want %q", text, got, fact, message)
		}
	}
	if _, fact := ParseObject([]byte(strings.Repeat(`{"a":`, 9)+"1"+strings.Repeat("}", 9)), 8); fact == nil {
		t.Error("nesting beyond the bound was accepted")
	}
}

func FuzzAnyObjectIsWhatOthersRead(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,"x",null,true]}`, `{"a":{"b":"\u00e9"}}`, `{}`, `{"a":-0}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, fact := ParseObject([]byte(s), 64)
		if fact != nil {
			return
		}
		b, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var mine, theirs map[string]any
		if json.Unmarshal(b, &mine) != nil || json.Unmarshal([]byte(s), &theirs) != nil || !reflect.DeepEqual(mine, theirs) {
			t.Errorf("%q is read as %s", s, b)
		}
	})
}
