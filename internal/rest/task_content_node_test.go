package rest_test

import (
	"encoding/base64"
	"strconv"
	"strings"
	"testing"
)

// hostile is what a producer may write so that a browser of an operator runs it.
const hostile = `<!DOCTYPE html><html><script>fetch("/v1/tasks")</script></html>`

// asAttachment wants an answer that a browser stores and does not show, whatever it holds.
func (r reply) asAttachment(t *testing.T, what, body, kind string, size int) {
	t.Helper()
	for name, want := range map[string]string{
		"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff", "Content-Disposition": "attachment",
		"Cache-Control": "no-store", "Content-Length": strconv.Itoa(len(body)), "Millrace-Size": strconv.Itoa(size), "Millrace-Type": kind,
	} {
		if got := r.header.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %s is %q, want %q", what, name, got, want)
		}
	}
	if string(r.body) != body {
		t.Errorf("%s: %q, want %q", what, r.body, body)
	}
	if r.header.Get("Millrace-Index") == "" {
		t.Errorf("%s does not say where it stands", what)
	}
}

func TestPayloadAndResultAreReadAsTheyAre(t *testing.T) {
	d := openDoor(t, mail)
	const kind, size = "text/html; charset=utf-8", len(hostile)
	as64 := base64.StdEncoding.EncodeToString([]byte(hostile))
	path := "/v1/tasks/" + d.do(mail, "POST", "/v1/tasks", `{"queue":"q","payload_base64":"`+as64+`","content_type":"`+kind+`"}`).want(t, 201).text(t, "id")
	d.do(mail, "GET", path+"/payload", "", "Accept", "text/html").want(t, 200).asAttachment(t, "the payload", hostile, kind, size)
	d.do(mail, "GET", path+"/payload?max=9&consistency=stale", "").want(t, 200).asAttachment(t, "its beginning", hostile[:9], kind, size)
	d.do(mail, "GET", path+"/payload?max=1048576", "").want(t, 200).asAttachment(t, "up to the limit", hostile, kind, size)
	for _, max := range []string{"0", "1048577", "-1", "x", "", "99999999999999999999"} {
		for _, tail := range []string{"/payload", "/output"} {
			if got := d.do(mail, "GET", path+tail+"?max="+max, "").want(t, 400); got.text(t, "error", "field") != "max" {
				t.Errorf("%s with max=%s: %s", tail, max, got.body)
			}
		}
	}
	missing := d.do(mail, "GET", path+"/output", "").want(t, 404)
	if missing.text(t, "error", "code") != "NOT_FOUND" || missing.header.Get("Content-Disposition") != "" {
		t.Errorf("a task without result: %s", missing.body)
	}
	_, token := d.claimOne("q")
	d.do(mail, "POST", path+"/complete", `{"token":"`+token+`","result_base64":"`+as64+`","result_type":"text/html"}`).want(t, 200)
	d.do(mail, "GET", path+"/output", "").want(t, 200).asAttachment(t, "the result", hostile, "text/html", size)
	d.do(mail, "GET", path+"/output?max=1", "").want(t, 200).asAttachment(t, "its first byte", "<", "text/html", size)
	for _, tail := range []string{"/payload", "/output", "?view=meta"} {
		d.do(mail, "GET", "/v1/tasks/"+strings.Repeat("0", 25)+"1"+tail, "").want(t, 404)
		d.do(mail, "GET", "/v1/tasks/x"+tail, "").want(t, 400)
	}
}

func TestATaskIsReadWithoutItsContent(t *testing.T) {
	d := openDoor(t, mail)
	id := d.do(mail, "POST", "/v1/tasks", `{"queue":"q","payload":{"to":"ada"}}`).want(t, 201).text(t, "id")
	path := "/v1/tasks/" + id
	has := func(what, url string, want map[string]string, not ...string) {
		t.Helper()
		got := d.do(mail, "GET", url, "").want(t, 200)
		for name, value := range want {
			if s := string(got.field(t, name)); s != value {
				t.Errorf("%s: %s is %s, want %s", what, name, s, value)
			}
		}
		for _, name := range not {
			if strings.Contains(string(got.body), `"`+name+`":`) {
				t.Errorf("%s has %s: %s", what, name, got.body)
			}
		}
	}
	has("a task that waits", path+"?view=meta", map[string]string{"payload_size": "12", "has_result": "false", "state": `"ready"`}, "payload", "result", "result_size")
	_, token := d.claimOne("q")
	d.do(mail, "POST", path+"/complete", `{"token":"`+token+`","result":[1, 2]}`).want(t, 200)
	has("a completed task", path+"?view=meta", map[string]string{"payload_size": "12", "result_size": "6", "has_result": "true"}, "payload", "result")
	for _, url := range []string{path, path + "?view=full"} {
		has("the whole task", url, map[string]string{"payload": `{"to":"ada"}`, "result": "[1, 2]"}, "payload_size", "result_size")
	}
	if got := d.do(mail, "GET", path+"?view=lean", "").want(t, 400); got.text(t, "error", "field") != "view" {
		t.Errorf("another view: %s", got.body)
	}
	empty := d.do(mail, "POST", "/v1/tasks", `{"queue":"q","payload_base64":""}`).want(t, 201).text(t, "id")
	has("a task with an empty payload", "/v1/tasks/"+empty+"?view=meta", map[string]string{"payload_size": "0"}, "payload")
}
