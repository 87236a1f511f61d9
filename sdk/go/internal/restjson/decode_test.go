package restjson

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

func TestAnAnswerIsReadAsTheOptionsOfTheContractSay(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"numbers that are exact, payloads as they stand": {
			`{"tasks":[{"id":"a","token":"18446744073709551615","payload":{"n": 9007199254740993},"lease":"1m30s","created_at":"2026-01-02T03:04:05.006Z"}],"index":"7"}`,
			`tasks: {id: "a" token: 18446744073709551615 payload: "{\"n\": 9007199254740993}" lease_ms: 90000 created_ms: 1767323045006}`,
		},
		"bytes as base64, and null":               {`{"tasks":[{"payload_base64":"AP8=","kind":null}]}`, `tasks: {payload: "\x00\xff"}`},
		"what a newer server adds is passed over": {`{"tasks":[{"id":"a","new":{"x":[1,{"y":"\"}"}],"z":-1.5e3}}],"other":true}`, `tasks: {id: "a"}`},
		"a payload that is null":                  {`{"tasks":[{"payload": null }]}`, `tasks: {payload: "null"}`},
		"escapes":                                 {`{"tasks":[{"id":"\u00e4\ud83d\ude00\n\"\\"}]}`, `tasks: {id: "ä😀\n\"\\"}`},
	} {
		want, got := new(pb.ClaimResponse), new(pb.ClaimResponse)
		if err := prototext.Unmarshal([]byte(tc.want), want); err != nil {
			t.Fatal(err)
		}
		if err := Decode([]byte(tc.text), got.ProtoReflect()); err != nil || !proto.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", name, err, got, want)
		}
	}
}

func TestTheFieldsOfAnInlineMessageStandInTheAnswer(t *testing.T) {
	got := new(pb.GetTenantResponse)
	if err := Decode([]byte(`{"tenant":"a","version":"3","key_bytes":5,"namespaces":2}`), got.ProtoReflect()); err != nil {
		t.Fatal(err)
	}
	if c := got.GetConfig(); got.GetTenant() != "a" || c.GetVersion() != 3 || c.GetKeyBytes() != 5 || got.GetNamespaces() != 2 {
		t.Errorf("got %v", got)
	}
}

func TestWordsMapsAndErrors(t *testing.T) {
	got := new(pb.SettleResponse)
	text := `{"results":[{"state":"dead","replayed":true},{"state":"of a newer server"},
		{"error":{"code":"RATE_LIMITED","message":"m","outcome":"unknown","op":-1,"details":{"rev":"4","":"x"},"retry_after_ms":1500}}]}`
	if err := Decode([]byte(text), got.ProtoReflect()); err != nil {
		t.Fatal(err)
	}
	e := got.GetResults()[2].GetError()
	if got.GetResults()[0].GetState() != pb.State_DEAD || got.GetResults()[1].GetState() != 0 || e.GetOutcome() != pb.Error_UNKNOWN ||
		e.Op == nil || e.GetOp() != -1 || e.GetDetails()["rev"] != "4" || e.GetRetryAfter().AsDuration().Milliseconds() != 1500 {
		t.Errorf("got %v", got)
	}
}

func TestWhatIsNotSuchAnAnswerIsAnError(t *testing.T) {
	for _, text := range []string{
		``, `null`, `[]`, `{`, `{"tasks"}`, `{"tasks":[}`, `{"tasks":[{"id":1}]}`, `{"tasks":[{"attempt":-1}]}`, `{"tasks":[{"attempt":1.5}]}`,
		`{"tasks":[{"lease":"long"}]}`, `{"tasks":[{"created_at":"today"}]}`, `{"tasks":[{"payload_base64":"?"}]}`, `{"tasks":[{"payload":{]}}]}`,
		`{"tasks":[{"id":"a` + "\n" + `"}]}`, `{"tasks":[{"id":"\x"}]}`, `{} {}`, `{"x":01}`, `{"x":tru}`, `<html>`, `{"x":` + strings.Repeat("[", 5000) + `}`,
	} {
		if err := Decode([]byte(text), new(pb.ClaimResponse).ProtoReflect()); err == nil {
			t.Errorf("%.60s was read", text)
		}
	}
}

func TestAMemberIsReturnedAsItStands(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":[1],"error":{"code": "X"},"b":2}`: `{"code": "X"}`, `{"a":1}`: "", `{"error":null}`: "", `{"error":1`: "", "": "",
	} {
		if got := string(Member([]byte(text), "error")); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
