package rest_test

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
)

func TestReadsTellWhoWroteAKey(t *testing.T) {
	for _, partitions := range []int{1, 3} {
		d := openDoorOf(t, 2, mail)
		d.do(mail, http.MethodPost, "/v1/namespace", fmt.Sprintf(`{"partitions": %d}`, partitions)).want(t, 201)
		set := d.do(mail, http.MethodPut, "/v1/keyspaces/ks", `{"writers":true}`).want(t, 200)
		if got := d.do(mail, http.MethodGet, "/v1/keyspaces/ks", "").want(t, 200); string(got.field(t, "config", "writers")) != "true" || set.text(t, "version") != "1" {
			t.Errorf("the setting reads as %s", got.body)
		}
		d.do(mail, http.MethodPut, "/v1/kv/ks/keys/%7Bt%7Doutside", "v").want(t, 200)
		// The tag puts the keys where the task is.
		id := d.do(mail, http.MethodPost, "/v1/tasks", `{"queue":"mail","tag":"t"}`).want(t, 201).text(t, "id")
		_, token := d.claimOne("mail")
		put := func(key string) string {
			return `{"ops":[{"kv_put":{"keyspace":"ks","key":"{t}` + key + `","value":"v"}},{"kv_put":{"keyspace":"other","key":"{t}` + key + `","value":"v"}}]`
		}
		d.do(mail, http.MethodPost, "/v1/commit", put("mid")+`,"fence":{"task":"`+id+`","token":"`+token+`"}}`).want(t, 200)
		d.do(mail, http.MethodPost, "/v1/tasks/"+id+"/complete", `{"token":"`+token+`","effects":`+put("done")+`}}`).want(t, 200)
		told := func(what string, r reply, path ...string) {
			t.Helper()
			if r.text(t, append(path, "writer", "task")...) != id || r.text(t, append(path, "writer", "token")...) != token {
				t.Errorf("%d partitions, %s: %s, want %s %s", partitions, what, r.body, id, token)
			}
		}
		for _, key := range []string{"mid", "done"} {
			if got := d.do(mail, http.MethodGet, "/v1/kv/ks/keys/%7Bt%7D"+key, "").want(t, 200).header.Get("Millrace-Writer"); got != id+" "+token {
				t.Errorf("%s: Millrace-Writer %q, want %s %s", key, got, id, token)
			}
			told("read with others", d.do(mail, http.MethodPost, "/v1/kv/ks/get", `{"keys":["{t}`+key+`"]}`).want(t, 200), "results", "[0]")
			for _, query := range []string{"", "&head=1", "&keys_only=true", "&order=desc"} {
				told("listed"+query, d.do(mail, http.MethodGet, "/v1/kv/ks?prefix=%7Bt%7D"+key+query, "").want(t, 200), "items", "[0]")
			}
		}
		silent := func(what, keyspace, key string) {
			t.Helper()
			if got := d.do(mail, http.MethodGet, "/v1/kv/"+keyspace+"/keys/%7Bt%7D"+key, "").want(t, 200).header.Values("Millrace-Writer"); len(got) > 0 {
				t.Errorf("%s: Millrace-Writer %q", what, got)
			}
			for _, r := range []reply{
				d.do(mail, http.MethodPost, "/v1/kv/"+keyspace+"/get", `{"keys":["{t}`+key+`"]}`).want(t, 200),
				d.do(mail, http.MethodGet, "/v1/kv/"+keyspace+"?prefix=%7Bt%7D"+key, "").want(t, 200),
			} {
				if bytes.Contains(r.body, []byte("writer")) || !bytes.Contains(r.body, []byte(`"value":"v"`)) {
					t.Errorf("%s: %s", what, r.body)
				}
			}
		}
		silent("from outside", "ks", "outside")
		silent("without the setting", "other", "done")
		d.do(mail, http.MethodPut, "/v1/kv/ks/keys/%7Bt%7Dmid", "v").want(t, 200)
		silent("from outside, over a task's", "ks", "mid")
		// A configuration replaces the one before as a whole.
		d.do(mail, http.MethodPut, "/v1/keyspaces/ks", `{"quota":{"bytes":1000000}}`).want(t, 200)
		if got := d.do(mail, http.MethodGet, "/v1/keyspaces/ks", "").want(t, 200); string(got.field(t, "config", "writers")) != "false" {
			t.Errorf("the setting that was taken back reads as %s", got.body)
		}
		told("kept before the setting was taken back", d.do(mail, http.MethodPost, "/v1/kv/ks/get", `{"keys":["{t}done"]}`).want(t, 200), "results", "[0]")
		if r := d.do(mail, http.MethodPut, "/v1/keyspaces/ks", `{"writers":"yes"}`).want(t, 400); r.text(t, "error", "field") != "writers" {
			t.Errorf("a setting of another type: %s", r.body)
		}
	}
}
