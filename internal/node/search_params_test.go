package node

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/millrace/millrace/internal/strictjson"
)

// Whatever is read the short way is read as encoding/json does it.
func FuzzParametersAreReadAlikeBothWays(f *testing.F) {
	for _, s := range []string{
		`{"site":[41.5,-88.1],"radius":240}`, `{}`, ` { "a" : [ ] , "b" : { "c" : null } } `, `{"a":true,"b":false,"a":"x"}`, `{"a":-0}`, `{"a":-0.0}`,
		`{"a":01}`, `{"a":1.}`, `{"a":.5}`, `{"a":1e5}`, `{"a":9223372036854775807}`, `{"a":9223372036854775808}`, `{"a":-}`, `{"a":"\u0041"}`, `{"a":"é"}`,
		`{"a":1,}`, `{"a":[1,]}`, `{,}`, `[1]`, `{"a":1}x`, `{"a":1} {}`, `{"a":tru}`, `null`, `{"a" 1}`, `{"a":[[[[[[[[[1]]]]]]]]]}`, `{"a":1.5.5}`,
		"{\"a\":\"\x01\"}", `{"a":1-1}`, `{"a":00}`, `{"a":0}`, `{"a":-01}`, `{a:1}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, fact := strictjson.ParseObject([]byte(s), paramDepth)
		if fact != nil {
			return
		}
		want, err := anyParams("params", []byte(s))
		if err != nil || !json.Valid([]byte(s)) || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v the short way, %v and %v the other", s, got, want, err)
		}
	})
}

func TestParametersAsTheyMostlyAreAreReadTheShortWay(t *testing.T) {
	for _, s := range []string{`{"site":[41.5,-88.1],"radius":240}`, `{"least": 5, "who": "busy", "on": true, "none": null}`, `{"a":{"b":[]}}`, `{"text":"\u00e9 \n é"}`} {
		if _, fact := strictjson.ParseObject([]byte(s), paramDepth); fact != nil {
			t.Errorf("%s is left to encoding/json", s)
		}
	}
}
