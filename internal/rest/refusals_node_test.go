package rest_test

import (
	"strings"
	"testing"
	"time"
)

// What bounds refuse is counted by their names, where the bounds are read. Nothing of it is shown to another tenant.
func TestWhatBoundsRefuseIsShownWhereTheyAreRead(t *testing.T) {
	const second = "globex"
	d := openDoor(t, mail, second)
	d.do(mail, "PUT", "/v1/queues/q", `{"max_tasks":1}`).want(t, 201)
	fresh := d.do(mail, "GET", "/v1/namespace", "").want(t, 200)
	if got := string(fresh.field(t, "refusals", "bounds")); got != "[]" {
		t.Errorf("nothing was refused: %s", got)
	}
	since, err := time.Parse(time.RFC3339Nano, fresh.text(t, "refusals", "nodes", "[0]", "since"))
	if name := fresh.text(t, "refusals", "nodes", "[0]", "node"); err != nil || name == "" || time.Since(since) < 0 {
		t.Errorf("node %q counts since %v, %v", name, since, err)
	}
	d.do(mail, "POST", "/v1/tasks", `{"queue":"q"}`).want(t, 201)
	for range 2 {
		d.do(mail, "POST", "/v1/tasks", `{"queue":"q"}`).want(t, 429)
	}
	d.do(mail, "PUT", "/v1/namespace", `{"key_writes_per_second":1}`).want(t, 200)
	// The first puts come before the rate is in force.
	for refused := 0; refused < 2; {
		if d.do(mail, "PUT", "/v1/kv/s/keys/a", `{"value":"MQ=="}`).status == 429 {
			refused++
		}
	}
	got := string(d.do(mail, "GET", "/v1/namespace", "").want(t, 200).field(t, "refusals", "bounds"))
	for _, want := range []string{`{"bound":"max_tasks","count":2,`, `{"bound":"key_writes_per_second","count":2,`} {
		if !strings.Contains(got, want) {
			t.Errorf("the namespace's: %s, want %s", got, want)
		}
	}

	d.do(mail, "PUT", "/v1/tenants/"+mail, `{"tasks":1}`).want(t, 200)
	// The partition is told of the bound within a second.
	for d.do(mail, "POST", "/v1/tasks", `{"queue":"other"}`).status != 429 {
		continue
	}
	tenant := d.do(mail, "GET", "/v1/tenant", "").want(t, 200)
	if got := string(tenant.field(t, "refusals", "bounds")); !strings.HasPrefix(got, `[{"bound":"tasks","count":1,"last":"`) || strings.Contains(got, "max_tasks") {
		t.Errorf("the tenant's: %s", got)
	}
	d.do(second, "POST", "/v1/tasks", `{"queue":"q"}`).want(t, 201)
	for _, path := range []string{"/v1/namespace", "/v1/tenant"} {
		if got := string(d.do(second, "GET", path, "").want(t, 200).field(t, "refusals", "bounds")); got != "[]" {
			t.Errorf("%s of another tenant: %s", path, got)
		}
	}
}
