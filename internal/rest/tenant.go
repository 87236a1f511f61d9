package rest

import (
	"net/http"
)

// tenantsService begins the methods of tenants.
const tenantsService = "/millrace.v1.TenantService/"

// tenantRoutes bound tenants.
func tenantRoutes() []*Route {
	return []*Route{
		{
			Method: http.MethodGet, Path: "/v1/tenant", Native: tenantsService + "Get", Answer: "Tenant", Headers: []string{"ETag"}, Status: statusOK, Query: staleParams,
			Doc: "Read what bounds the caller's tenant, and what its keys take. The ETag is the version.", handle: (*restCall).tenantGet,
		},
		{
			Method: http.MethodGet, Path: "/v1/tenants/{tenant}", Native: tenantsService + "Get", Answer: "Tenant", Headers: []string{"ETag"}, Status: statusOK, Query: staleParams,
			Doc: "Read what bounds a tenant, and what its keys take. The ETag is the version.", handle: (*restCall).tenantGet2,
		},
		{
			Method: http.MethodPut, Path: "/v1/tenants/{tenant}", Repeat: RepeatCondition, Native: tenantsService + "Set", Body: "TenantConfig", Answer: "SetTenantResponse", Headers: []string{"ETag"}, Status: statusOK,
			Header: []Param{ifMatch},
			Doc:    "Replace what bounds a tenant, which need not have been used yet. The version rises only when something changes.",
			fields: fieldNames(tenantConfigFields), handle: (*restCall).tenantSet,
		},
	}
}
