package rest

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// nothingRefused is of bounds that refused nothing.
const nothingRefused = `"refusals":{"bounds":[],"nodes":[{"node":"n1","since":"2030-01-02T03:04:05Z"}],"partial":false}`

func TestATenantIsBoundedByWhoMayAndReadByItsAdmin(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	tenants := pb.NewTenantServiceClient(r.conn)
	set := func(token string, in *pb.SetTenantRequest) error {
		_, err := tenants.Set(apitest.As(token), in)
		return err
	}
	bounds := &pb.TenantConfig{KeyBytes: 50, KeyWritesPerSecond: 6, KeyBytesPerSecond: 7}
	apitest.ExpectCode(t, "an admin", set("acme/admin", &pb.SetTenantRequest{Tenant: "acme", Config: bounds}), codes.PermissionDenied)
	apitest.ExpectCode(t, "one who may", set("acme/all", &pb.SetTenantRequest{Tenant: "rival", Config: bounds}), codes.OK)
	apitest.ExpectCode(t, "the version before", set("acme/all", &pb.SetTenantRequest{Tenant: "rival", IfVersion: proto.Uint64(0)}), codes.FailedPrecondition)
	apitest.ExpectCode(t, "no name", set("acme/all", &pb.SetTenantRequest{}), codes.InvalidArgument)
	err := set("acme/all", &pb.SetTenantRequest{Tenant: "rival", Config: &pb.TenantConfig{KeyBytesPerSecond: -1}})
	if e := apitest.ErrorOf(t, err); e.GetField() != "config.key_bytes_per_second" {
		t.Errorf("a negative bound: %v", e)
	}
	got, err := tenants.Get(apitest.As("rival/admin"), &pb.GetTenantRequest{})
	if err != nil || got.GetTenant() != "rival" || got.GetConfig().GetKeyBytes() != 50 || got.GetMeasuredKeyBytes() != 60 || !got.GetOverKeyBytes() {
		t.Errorf("its own: %v, %v", got, err)
	}
	for what, c := range map[string]struct {
		token, name string
		want        codes.Code
	}{
		"another's, by an admin": {"acme/admin", "rival", codes.PermissionDenied}, "an unknown one, by an admin": {"acme/admin", "unknown", codes.PermissionDenied},
		"another's": {"acme/all", "rival", codes.OK}, "an unknown one": {"acme/all", "unknown", codes.NotFound},
		"its own, without a configuration": {"acme/admin", "", codes.OK}, "by a worker": {"rival/work", "", codes.PermissionDenied},
	} {
		_, err := tenants.Get(apitest.As(c.token), &pb.GetTenantRequest{Tenant: c.name})
		apitest.ExpectCode(t, what, err, c.want)
	}
	a := r.do("PUT", "/v1/tenants/acme", `{"key_bytes":80,"key_writes_per_second":3}`).expect(t, "over REST", http.StatusOK)
	if want := `{"version":"1"}` + "\n"; a.body != want {
		t.Errorf("%s", a.body)
	}
	r.do("PUT", "/v1/tenants/acme", `{"key_byte":80}`).expect(t, "an unknown field", http.StatusBadRequest)
	for _, path := range []string{"/v1/tenant", "/v1/tenants/acme"} {
		a := r.do("GET", path, "").expect(t, path, http.StatusOK)
		want := `{"tenant":"acme","version":"1","key_bytes":80,"key_writes_per_second":3,"namespaces":2,"measured_key_bytes":60,"over_key_bytes":false,` +
			`"recent_key_writes_per_second":3,"recent_key_bytes_per_second":30,"overshoot_key_writes":1,"overshoot_key_bytes_written":10,` +
			`"current_tasks":0,"current_task_bytes":0,"current_running_tasks":0,"current_streams":0,` +
			`"overshoot_tasks":0,"overshoot_task_bytes":0,"overshoot_running_tasks":0,` + nothingRefused + "}\n"
		if a.body != want {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}

// What bounds tasks and streams of a tenant is written and read as it is, with what there is of them and what is beyond.
func TestBoundsOnTheTasksOfATenant(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.Use = core.TaskUse{Tasks: 12, Bytes: 99, Running: 3}
	body := `{"weight":3,"task_creates_per_second":4,"streams":5,"tasks":10,"task_bytes":100,"running_tasks":2}`
	r.do("PUT", "/v1/tenants/acme", body).expect(t, "all bounds", http.StatusOK)
	want := `{"tenant":"acme","version":"1","weight":3,"task_creates_per_second":4,"streams":5,"tasks":10,"task_bytes":100,"running_tasks":2,` +
		`"namespaces":2,"measured_key_bytes":60,"over_key_bytes":false,"current_tasks":12,"current_task_bytes":99,"current_running_tasks":3,` +
		`"current_streams":0,"overshoot_tasks":2,"overshoot_task_bytes":0,"overshoot_running_tasks":1,"recent_task_creates_per_second":3,"overshoot_task_creates":1,` + nothingRefused + "}\n"
	if a := r.do("GET", "/v1/tenant", "").expect(t, "read", http.StatusOK); a.body != want {
		t.Errorf("%s", a.body)
	}
	for field, body := range map[string]string{
		"weight": `{"weight":1001}`, "task_creates_per_second": `{"task_creates_per_second":-1}`, "tasks": `{"tasks":-1}`,
	} {
		if e := failed(t, r.do("PUT", "/v1/tenants/acme", body).expect(t, field, http.StatusBadRequest)); !strings.HasSuffix(e.Field, field) {
			t.Errorf("%s: %+v", field, e)
		}
	}
	r.n.EntryFormat = core.FormatShare - 1
	if e := failed(t, r.do("PUT", "/v1/tenants/acme", `{"tasks":1}`).expect(t, "an older format", http.StatusBadRequest)); e.Reason != "not_supported" {
		t.Errorf("an older format: %+v", e)
	}
	r.do("PUT", "/v1/tenants/acme", `{"key_bytes":1}`).expect(t, "bounds on keys under an older format", http.StatusOK)
}
