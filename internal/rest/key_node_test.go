package rest_test

import (
	"strings"
	"testing"
)

const bank = "bank"

// An Idempotency-Key names a request on every route that takes it: its repetition changes nothing and gets the first answer,
// other content is refused by the header's name, and another tenant's key of that name is its own.
func TestAnIdempotencyKeyMakesARequestRepeatable(t *testing.T) {
	d := openDoor(t, mail, bank)
	keyed := func(tenant, method, path, key, body string, status int) reply {
		return d.do(tenant, method, path, body, "Idempotency-Key", key).want(t, status)
	}
	refused := func(r reply, key string) {
		t.Helper()
		if r.text(t, "error", "code") != "ALREADY_EXISTS" || !strings.Contains(r.text(t, "error", "message"), key) || !strings.Contains(r.text(t, "error", "message"), "Idempotency-Key") {
			t.Errorf("another request under %s: %s", key, r.body)
		}
	}
	add := func(n string) string {
		return `{"ops":[{"kv_add":{"keyspace":"z","key":"n","delta":` + n + `}},{"task_create":{"queue":"made"}}]}`
	}
	first := keyed(mail, "POST", "/v1/commit", "k", add("1"), 200)
	for range 3 {
		again := keyed(mail, "POST", "/v1/commit", "k", add("1"), 200)
		if string(again.field(t, "replayed")) != "true" || string(again.field(t, "results", "[0]")) != string(first.field(t, "results", "[0]")) ||
			again.text(t, "index") != first.text(t, "index") || !strings.Contains(string(first.body), again.text(t, "index")) {
			t.Errorf("repeated: %s, at first %s", again.body, first.body)
		}
	}
	refused(keyed(mail, "POST", "/v1/commit", "k", add("2"), 409), "k")
	refused(keyed(mail, "PUT", "/v1/kv/z/keys/n", "k", "7", 409), "k")
	keyed(bank, "POST", "/v1/commit", "k", add("2"), 200)
	for tenant, want := range map[string]string{mail: "1", bank: "2"} {
		if got := d.do(tenant, "GET", "/v1/kv/z/keys/n", "").want(t, 200); string(got.body) != want {
			t.Errorf("the number of %s is %s, want %s", tenant, got.body, want)
		}
	}

	made := keyed(mail, "PUT", "/v1/kv/z/keys/once?if_absent=true", "put", "v", 200)
	again := keyed(mail, "PUT", "/v1/kv/z/keys/once?if_absent=true", "put", "v", 200)
	if made.text(t, "rev") != again.text(t, "rev") {
		t.Errorf("a put, repeated: %s, at first %s", again.body, made.body)
	}
	d.do(mail, "PUT", "/v1/kv/z/keys/once?if_absent=true", "v").want(t, 412)
	for range 2 {
		if r := keyed(mail, "DELETE", "/v1/kv/z/keys/once", "delete", "", 200); string(r.field(t, "existed")) != "true" {
			t.Errorf("a delete: %s", r.body)
		}
	}

	repo := keyed(mail, "POST", "/v1/repos", "repo", `{"name":"a"}`, 201)
	if again := keyed(mail, "POST", "/v1/repos", "repo", `{"name":"a"}`, 200); repo.text(t, "id") != again.text(t, "id") {
		t.Errorf("a repository, repeated: %s, at first %s", again.body, repo.body)
	}
	refused(keyed(mail, "POST", "/v1/repos", "repo", `{"name":"a","default_branch":"trunk"}`, 409), "repo")
	refused(keyed(mail, "POST", "/v1/repos", "repo", `{"name":"b"}`, 409), "repo")
	point := func(to string) string {
		return `{"changes":[{"kind":"symref_create","name":"refs/x","target":"refs/heads/` + to + `"}]}`
	}
	keyed(mail, "POST", "/v1/repos/a/refs", "refs", point("one"), 200)
	if r := keyed(mail, "POST", "/v1/repos/a/refs", "refs", point("one"), 200); string(r.field(t, "replayed")) != "true" {
		t.Errorf("refs, repeated: %s", r.body)
	}
	refused(keyed(mail, "POST", "/v1/repos/a/refs", "refs", point("two"), 409), "refs")

	both := `{"request_id":"6f1f3a3e-33aa-4f0e-9f4c-1a2b3c4d5e6f",` + add("1")[1:]
	for what, key := range map[string]string{"with a request id": "x", "empty": "", "too long": strings.Repeat("x", 257), "not UTF-8": "\xff"} {
		body := add("1")
		if key == "x" {
			body = both
		}
		if r := keyed(mail, "POST", "/v1/commit", key, body, 400+13*btoi(len(key) > 256)); r.text(t, "error", "field") != "Idempotency-Key" {
			t.Errorf("%s: %s", what, r.body)
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
