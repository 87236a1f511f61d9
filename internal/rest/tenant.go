package rest

import (
	"net/http"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

const tenantsService = "/millrace.v1.TenantService/"

// tenantRoutes bound tenants.
func tenantRoutes() []*Route {
	return []*Route{
		{
			Method: http.MethodGet, Path: "/v1/tenant", Native: tenantsService + "Get", Answer: "Tenant", Headers: []string{"ETag"}, Status: statusOK,
			Doc: "Read what bounds the caller's tenant, and what its keys take. The ETag is the version.", handle: (*restCall).getTenant,
		},
		{
			Method: http.MethodGet, Path: "/v1/tenants/{tenant}", Native: tenantsService + "Get", Answer: "Tenant", Headers: []string{"ETag"}, Status: statusOK,
			Doc: "Read what bounds a tenant, and what its keys take. The ETag is the version.", handle: (*restCall).getTenant,
		},
		{
			Method: http.MethodPut, Path: "/v1/tenants/{tenant}", Repeat: RepeatCondition, Native: tenantsService + "Set", Body: "TenantConfig", Answer: "SetTenantResponse", Headers: []string{"ETag"}, Status: statusOK,
			Header: []Param{ifMatch},
			Doc:    "Replace what bounds a tenant, which need not have been used yet. The version rises only when something changes.",
			fields: fieldNames(tenantConfigFields), handle: (*restCall).setTenant,
		},
	}
}

var tenantConfigFields = []jsonField[pb.TenantConfig]{
	{"version", func(d *jsonReader, m *pb.TenantConfig) { m.Version = d.Unsigned() }},
	{"key_bytes", func(d *jsonReader, m *pb.TenantConfig) { m.KeyBytes = d.Integer(0, api.MaxQuota) }},
	{"key_writes_per_second", func(d *jsonReader, m *pb.TenantConfig) { m.KeyWritesPerSecond = d.Integer(0, api.MaxQuota) }},
	{"key_bytes_per_second", func(d *jsonReader, m *pb.TenantConfig) { m.KeyBytesPerSecond = d.Integer(0, api.MaxQuota) }},
}

// getTenant serves GET /v1/tenant and GET /v1/tenants/{tenant}.
func (c *restCall) getTenant() error {
	in := new(pb.GetTenantRequest)
	if len(c.params) > 0 {
		in.Tenant = c.params[0]
	}
	out, err := c.s.Tenants().Get(c.ctx, in)
	if err != nil {
		return err
	}
	c.tag(out.GetConfig().GetVersion())
	return c.object(http.StatusOK, func(w *jsonWriter) {
		w.Str("tenant", out.GetTenant())
		w.Exact("version", out.GetConfig().GetVersion())
		w.OptInt("key_bytes", out.GetConfig().GetKeyBytes())
		w.OptInt("key_writes_per_second", out.GetConfig().GetKeyWritesPerSecond())
		w.OptInt("key_bytes_per_second", out.GetConfig().GetKeyBytesPerSecond())
		w.Int("namespaces", int64(out.GetNamespaces()))
		w.Count("measured_key_bytes", out.GetMeasuredKeyBytes())
		w.Bool("over_key_bytes", out.GetOverKeyBytes())
		if out.GetConfig().GetKeyWritesPerSecond() > 0 || out.GetConfig().GetKeyBytesPerSecond() > 0 {
			writePace(w, out)
		}
	})
}

// paced is an answer that tells what is put.
type paced interface {
	GetRecentKeyWritesPerSecond() uint64
	GetRecentKeyBytesPerSecond() uint64
	GetOvershootKeyWrites() uint64
	GetOvershootKeyBytesWritten() uint64
}

func writePace(w *jsonWriter, out paced) {
	w.Count("recent_key_writes_per_second", out.GetRecentKeyWritesPerSecond())
	w.Count("recent_key_bytes_per_second", out.GetRecentKeyBytesPerSecond())
	w.Count("overshoot_key_writes", out.GetOvershootKeyWrites())
	w.Count("overshoot_key_bytes_written", out.GetOvershootKeyBytesWritten())
}

// setTenant serves PUT /v1/tenants/{tenant}.
func (c *restCall) setTenant() error {
	in := &pb.SetTenantRequest{Tenant: c.params[0], Config: new(pb.TenantConfig)}
	var fact core.Fact
	if in.IfVersion, fact = c.ifMatch(); fact != nil {
		return fact
	}
	if err := readBody(c, in.GetConfig(), tenantConfigFields); err != nil {
		return err
	}
	out, err := c.s.Tenants().Set(c.ctx, in)
	if err != nil {
		return edge.Unprefixed("config", err)
	}
	c.tag(out.GetVersion())
	return c.object(http.StatusOK, func(w *jsonWriter) { w.Exact("version", out.GetVersion()) })
}
