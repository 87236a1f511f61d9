package rest

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/edge"
)

// sampleRequest is a request of a route that is accepted from a caller with every scope.
type sampleRequest struct {
	path, body string
	status     int // default: the route's first
}

// goodOperateRequests has one for every route of operators.
func goodOperateRequests() map[string]sampleRequest {
	id := "/v1/tasks/" + apitest.ID(1)
	return map[string]sampleRequest{
		"GET /v1/tasks/{id}/payload":                {path: id + "/payload?max=5"},
		"GET /v1/tasks/{id}/output":                 {path: id + "/output"},
		"POST /v1/tasks/{id}/run-now":               {path: id + "/run-now"},
		"POST /v1/tasks/{id}/stop":                  {path: id + "/stop", body: `{"token":4}`},
		"PATCH /v1/tasks/{id}":                      {path: id, body: `{"priority":3}`},
		"POST /v1/tasks/{id}/cancel":                {path: id + "/cancel"},
		"POST /v1/tasks/{id}/retry":                 {path: id + "/retry"},
		"POST /v1/tasks/{id}/force-release":         {path: id + "/force-release"},
		"POST /v1/queues/{queue}:pause":             {path: "/v1/queues/mail:pause", body: `{"reason":"deploy"}`},
		"GET /v1/queues/{queue}/keys":               {path: "/v1/queues/mail/keys?sort=backlog"},
		"PUT /v1/queues/{queue}/keys/{key}":         {path: "/v1/queues/mail/keys/ann", body: `{"weight":3}`},
		"POST /v1/queues/{queue}/keys/{key}:pause":  {path: "/v1/queues/mail/keys/ann:pause", body: `{"reason":"holiday"}`},
		"POST /v1/queues/{queue}/keys/{key}:resume": {path: "/v1/queues/mail/keys/ann:resume"},
		"POST /v1/tasks/{id}/report":                {path: "/v1/tasks/" + apitest.ID(1) + "/report", body: `{"token":4,"progress":{"percent":40}}`},
		"GET /v1/tasks/{id}/logs":                   {path: "/v1/tasks/" + apitest.ID(1) + "/logs"},
		"GET /v1/tasks/{id}/effects":                {path: "/v1/tasks/" + apitest.ID(1) + "/effects"},
		"GET /v1/tasks/{id}/why":                    {path: "/v1/tasks/" + apitest.ID(1) + "/why"},
		"POST /v1/bulk":                             {path: "/v1/bulk", body: `{"action":"retry","filter":{"queue":"mail"}}`},
		"POST /v1/queues/{queue}:redrive":           {path: "/v1/queues/mail:redrive", body: `{"rate":500}`},
		"GET /v1/bulk":                              {path: "/v1/bulk"},
		"GET /v1/bulk/{id}":                         {path: "/v1/bulk/" + apitest.ID(1)},
		"POST /v1/bulk/{id}:cancel":                 {path: "/v1/bulk/" + apitest.ID(1) + ":cancel"},
		"POST /v1/queues/{queue}:resume":            {path: "/v1/queues/mail:resume"},
		"DELETE /v1/tasks/{id}":                     {path: id},
		"POST /v1/batches":                          {path: "/v1/batches", body: `{"on_done":{"queue":"mail"}}`, status: http.StatusCreated},
		"GET /v1/batches":                           {path: "/v1/batches"},
		"GET /v1/batches/{id}":                      {path: "/v1/batches/" + apitest.ID(1)},
		"GET /v1/batches/{id}/result":               {path: "/v1/batches/" + apitest.ID(1) + "/result"},
		"POST /v1/batches/{id}:seal":                {path: "/v1/batches/" + apitest.ID(1) + ":seal"},
		"POST /v1/batches/{id}:cancel":              {path: "/v1/batches/" + apitest.ID(1) + ":cancel"},
		"GET /v1/limiters":                          {path: "/v1/limiters"},
		"GET /v1/limiters/{limiter}":                {path: "/v1/limiters/api"},
		"PUT /v1/limiters/{limiter}":                {path: "/v1/limiters/api", body: `{"concurrency":2}`},
		"DELETE /v1/limiters/{limiter}":             {path: "/v1/limiters/api", status: http.StatusNoContent},
		"GET /v1/crons":                             {path: "/v1/crons"},
		"GET /v1/crons/{cron}":                      {path: "/v1/crons/nightly"},
		"PUT /v1/crons/{cron}":                      {path: "/v1/crons/nightly", body: `{"schedule":"@daily","template":{"queue":"mail"}}`},
		"DELETE /v1/crons/{cron}":                   {path: "/v1/crons/nightly", status: http.StatusNoContent},
		"POST /v1/crons/{cron}:trigger":             {path: "/v1/crons/nightly:trigger"},
		"POST /v1/crons/{cron}:pause":               {path: "/v1/crons/nightly:pause"},
		"POST /v1/crons/{cron}:resume":              {path: "/v1/crons/nightly:resume"},
		"POST /v1/crons:preview":                    {path: "/v1/crons:preview", body: `{"schedule":"@daily"}`},
		"GET /v1/crons/{cron}/runs":                 {path: "/v1/crons/nightly/runs"},
	}
}

// goodRESTRequests has one for every route.
func goodRESTRequests() map[string]sampleRequest {
	id := "/v1/tasks/" + apitest.ID(1)
	out := map[string]sampleRequest{
		"POST /v1/tasks":                      {path: "/v1/tasks", body: `{"queue":"mail","payload":{}}`},
		"POST /v1/tasks:batch":                {path: "/v1/tasks:batch", body: `{"tasks":[{"queue":"mail"}]}`},
		"GET /v1/tasks":                       {path: "/v1/tasks?queue=mail&state=ready"},
		"GET /v1/tasks/{id}":                  {path: id},
		"GET /v1/tasks/{id}/attempts":         {path: id + "/attempts"},
		"GET /v1/tasks/{id}/result":           {path: id + "/result"},
		"POST /v1/tasks:endclaim":             {path: "/v1/tasks:endclaim", body: `{"claim":"0123456789abcdef0123456789abcdef"}`},
		"POST /v1/tasks:claim":                {path: "/v1/tasks:claim", body: `{"queues":["mail"]}`, status: http.StatusNoContent},
		"POST /v1/tasks:settle":               {path: "/v1/tasks:settle", body: `{"items":[{"id":"` + apitest.ID(1) + `","token":"4","release":{}}]}`},
		"POST /v1/tasks:heartbeat":            {path: "/v1/tasks:heartbeat", body: `{"items":[{"id":"` + apitest.ID(1) + `","token":"4"}]}`},
		"POST /v1/tasks/{id}/complete":        {path: id + "/complete", body: `{"token":"4","result":1}`},
		"POST /v1/tasks/{id}/fail":            {path: id + "/fail", body: `{"token":"4","error":{"code":"x"}}`},
		"POST /v1/tasks/{id}/snooze":          {path: id + "/snooze", body: `{"token":4,"delay":"5s"}`},
		"POST /v1/tasks/{id}/release":         {path: id + "/release", body: `{"token":4}`},
		"POST /v1/tasks/{id}/heartbeat":       {path: id + "/heartbeat", body: `{"token":4}`},
		"POST /v1/tasks:get":                  {path: "/v1/tasks:get", body: `{"ids":["` + apitest.ID(1) + `"]}`},
		"POST /v1/commit":                     {path: "/v1/commit", body: `{"ops":[{"kv_put":{"keyspace":"ks","key":"k","value":"v"}}]}`},
		"GET /v1/kv/{keyspace}/keys/{key}":    {path: "/v1/kv/ks/keys/k"},
		"GET /v1/queues":                      {path: "/v1/queues"},
		"GET /v1/queues/{queue}":              {path: "/v1/queues/mail"},
		"PUT /v1/queues/{queue}":              {path: "/v1/queues/mail", body: `{"lease":"30s"}`},
		"DELETE /v1/queues/{queue}":           {path: "/v1/queues/mail?purge=true", status: http.StatusNoContent},
		"GET /v1/queues/{queue}/stats":        {path: "/v1/queues/mail/stats"},
		"POST /v1/namespace":                  {path: "/v1/namespace", body: `{}`, status: http.StatusOK},
		"GET /v1/namespace":                   {path: "/v1/namespace"},
		"DELETE /v1/namespace":                {path: "/v1/namespace"},
		"PUT /v1/namespace":                   {path: "/v1/namespace", body: `{"auto_create":true}`},
		"POST /v1/repos":                      {path: "/v1/repos", body: `{"name":"app"}`},
		"GET /v1/repos":                       {path: "/v1/repos"},
		"GET /v1/repos/{repo}":                {path: "/v1/repos/app"},
		"PUT /v1/repos/{repo}":                {path: "/v1/repos/app", body: `{"config":{"reflog_days":3}}`},
		"DELETE /v1/repos/{repo}":             {path: "/v1/repos/app"},
		"POST /v1/repos/{repo}/undelete":      {path: "/v1/repos/app/undelete", body: `{}`},
		"GET /v1/repos/{repo}/refs":           {path: "/v1/repos/app/refs"},
		"POST /v1/repos/{repo}/refs":          {path: "/v1/repos/app/refs", body: `{"changes":[{"kind":"create","name":"refs/heads/a","new":"` + apitest.OID + `"}]}`},
		"POST /v1/repos/{repo}/refs:get":      {path: "/v1/repos/app/refs:get", body: `{"names":["HEAD"]}`},
		"GET /v1/repos/{repo}/refs/{name}":    {path: "/v1/repos/app/refs/heads/main"},
		"GET /v1/repos/{repo}/reflog":         {path: "/v1/repos/app/reflog?name=HEAD"},
		"GET /v1/repos/{repo}/activity":       {path: "/v1/repos/app/activity"},
		"GET /v1/status":                      {path: "/v1/status"},
		"GET /v1/openapi.json":                {path: "/v1/openapi.json"},
		"PUT /v1/kv/{keyspace}/keys/{key}":    {path: "/v1/kv/ks/keys/k", body: "v"},
		"DELETE /v1/kv/{keyspace}/keys/{key}": {path: "/v1/kv/ks/keys/k"},
		"POST /v1/kv/{keyspace}/get":          {path: "/v1/kv/ks/get", body: `{"keys":["k"]}`},
		"GET /v1/kv/{keyspace}":               {path: "/v1/kv/ks"},
		"DELETE /v1/kv/{keyspace}":            {path: "/v1/kv/ks?prefix="},
		"GET /v1/keyspaces":                   {path: "/v1/keyspaces"},
		"GET /v1/keyspaces/{keyspace}":        {path: "/v1/keyspaces/ks"},
		"PUT /v1/keyspaces/{keyspace}":        {path: "/v1/keyspaces/ks", body: `{"quota":{"bytes":5}}`},
		"DELETE /v1/keyspaces/{keyspace}":     {path: "/v1/keyspaces/ks"},
	}
	maps.Copy(out, goodOperateRequests())
	maps.Copy(out, goodSearchRequests())
	maps.Copy(out, goodServerRequests())
	maps.Copy(out, goodWatchRequests())
	return out
}

// goodWatchRequests are those of the routes by which operators see what goes on.
func goodWatchRequests() map[string]sampleRequest {
	return map[string]sampleRequest{
		"GET /v1/errors":                  {path: "/v1/errors"},
		"GET /v1/overview":                {path: "/v1/overview"},
		"GET /v1/history":                 {path: "/v1/history?queue=mail&series=created&span=1h"},
		"GET /v1/workers":                 {path: "/v1/workers"},
		"POST /v1/workers/{worker}:quiet": {path: "/v1/workers/w:quiet", body: `{"on":true}`},
	}
}

// goodServerRequests are those of the routes about the server, the cluster and tenants, and of events.
func goodServerRequests() map[string]sampleRequest {
	return map[string]sampleRequest{
		"GET /v1/events":            {path: "/v1/events?topics=queues"},
		"GET /v1/cluster":           {path: "/v1/cluster"},
		"POST /v1/cluster/members":  {path: "/v1/cluster/members", body: `{"verb":"add","node":4,"peer":"h:1"}`},
		"POST /v1/cluster/transfer": {path: "/v1/cluster/transfer", body: `{"shard":1,"to":2}`},
		"POST /v1/cluster/balance":  {path: "/v1/cluster/balance"},
		"POST /v1/cluster/finalize": {path: "/v1/cluster/finalize"},
		"GET /v1/tenant":            {path: "/v1/tenant"},
		"GET /v1/tenants/{tenant}":  {path: "/v1/tenants/acme"},
		"PUT /v1/tenants/{tenant}":  {path: "/v1/tenants/acme", body: `{"key_bytes":5}`},
		"POST /v1/session":          {path: "/v1/session", body: `{"token":"acme/all"}`},
		"GET /v1/namespaces":        {path: "/v1/namespaces"},
		"GET /v1/session":           {path: "/v1/session"},
		"DELETE /v1/session":        {path: "/v1/session"},
		"POST /v1/session:code":     {path: "/v1/session:code"},
		"POST /v1/sessions:end":     {path: "/v1/sessions:end"},
	}
}

// goodSearchRequests are those of the routes of search.
func goodSearchRequests() map[string]sampleRequest {
	return map[string]sampleRequest{
		"PUT /v1/collections/{collection}":                {path: "/v1/collections/ws", body: `{"schema":[{"name":"role","type":"keyword","index":true}]}`},
		"GET /v1/collections/{collection}":                {path: "/v1/collections/ws"},
		"DELETE /v1/collections/{collection}":             {path: "/v1/collections/ws"},
		"GET /v1/collections":                             {path: "/v1/collections"},
		"GET /v1/collections/{collection}/stats":          {path: "/v1/collections/ws/stats"},
		"POST /v1/collections/{collection}/points:upsert": {path: "/v1/collections/ws/points:upsert", body: `{"points":[{"id":"w1","payload":{"role":"a"}}]}`},
		"POST /v1/collections/{collection}/points:delete": {path: "/v1/collections/ws/points:delete", body: `{"points":[{"id":"w1"}]}`},
		"POST /v1/collections/{collection}/points:get":    {path: "/v1/collections/ws/points:get", body: `{"ids":["w1"],"vectors":true}`},
		"POST /v1/collections/{collection}/points:count":  {path: "/v1/collections/ws/points:count", body: `{"gate":{"roles":["a"]}}`},
		"PUT /v1/rulesets/{ruleset}":                      {path: "/v1/rulesets/r", body: `{"collection":"ws","rules":[{"id":"a","when":"true","severity":"bonus","weight":0.5}]}`},
		"GET /v1/rulesets/{ruleset}":                      {path: "/v1/rulesets/r@1"},
		"GET /v1/rulesets":                                {path: "/v1/rulesets"},
		"DELETE /v1/rulesets/{ruleset}":                   {path: "/v1/rulesets/r"},
		"POST /v1/embed":                                  {path: "/v1/embed", body: `{"text":"hello"}`},
		"POST /v1/embeddings":                             {path: "/v1/embeddings", body: `{"input":["hello"],"model":"default","encoding_format":"base64","user":"u"}`},
		"GET /v1/models":                                  {path: "/v1/models"},
		"GET /v1/models/{model}":                          {path: "/v1/models/m"},
		"POST /v1/matrix/search":                          {path: "/v1/matrix/search", body: `{"collection":"ws","query_text":"x","vector":null,"explain":true,"record":true}`},
		"GET /v1/recordings/{search_id}":                  {path: "/v1/recordings/00000000000000070000000000000009"},
	}
}

// each calls fn for every route with its good request.
func eachRoute(t *testing.T, fn func(rt *Route, s sampleRequest)) {
	t.Helper()
	samples := goodRESTRequests()
	for _, rt := range Routes() {
		s, ok := samples[rt.name()]
		if !ok {
			t.Errorf("route %s has no sample", rt.name())
			continue
		}
		if s.status == 0 {
			s.status = rt.Status[0]
		}
		fn(rt, s)
	}
}

func TestEveryRouteIsClosedToWhoHasNoRight(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	r.auth.Revoke("acme/all/5s")
	eachRoute(t, func(rt *Route, s sampleRequest) {
		send := func(what, token string, want int, more ...string) {
			r.send(r.request(rt.Method, s.path, token, s.body, more...)).expect(t, rt.name()+" with "+what, want)
		}
		if rt.rule.Public {
			send("no token", "", s.status)
			return
		}
		for what, token := range map[string]string{
			"no token": "", "an unknown token": "unknown", "an expired token": "acme/all/-1s", "a revoked token": "acme/all/5s",
			"an endless token": "acme/all" + strings.Repeat("x", auth.MaxText),
		} {
			r.tells(rt.name()+" with "+what, apitest.KnownToBeRefused[what], func() { send(what, token, http.StatusUnauthorized) })
			send(what+" and the headers of an admin", token, http.StatusUnauthorized,
				"X-Role", "ADMIN", "X-Tenant", "acme", "X-Scopes", "admin", "Cookie", "token=acme/all", "X-Api-Key", "acme/all")
		}
		send("another scheme", "", http.StatusUnauthorized, "Authorization", "Basic acme/all")
		send("two tokens", "acme/all", http.StatusUnauthorized, "Authorization", "Bearer acme/all")
		send("every scope", "acme/all", s.status)
		if rt.rule.Any {
			return
		}
		others := slices.DeleteFunc(auth.All.Names(), func(name string) bool {
			scope, _ := auth.ParseScope(name)
			return rt.rule.Scope.Has(scope) || rt.rule.Or.Has(scope)
		})
		for _, name := range rt.rule.Or.Names() {
			send(name+" alone", "acme/"+name, s.status)
		}
		send("all scopes but its own", "acme/"+strings.Join(others, ","), http.StatusForbidden, "X-Role", "ADMIN")
		send("its own scope alone", "acme/"+rt.rule.Scope.String(), s.status)
	})
	if a := r.send(r.request("GET", "/v1/status?token=acme/all", "", "")); a.status != http.StatusUnauthorized {
		t.Errorf("a token in the query: %d", a.status)
	}
}

func TestEveryMethodHasARoute(t *testing.T) {
	served := make(map[string]bool)
	for _, rt := range Routes() {
		served[rt.Native] = true
	}
	for _, method := range apitest.Methods() {
		reserved := strings.HasSuffix(method, "/Open") || strings.HasSuffix(method, "/Session") || strings.HasSuffix(method, "/LoadRefs") || apitest.NotBuilt[method] != 0
		// Gigabytes of files are no JSON, and GET /v1/events tells of tasks that change.
		reserved = reserved || method == pb.BackupService_Take_FullMethodName || method == pb.TaskService_Watch_FullMethodName
		if !served[method] && !reserved {
			t.Errorf("method %s has no route", method)
		}
	}
}

func TestARouteWithoutARuleKeepsTheServerFromBeingMade(t *testing.T) {
	for _, r := range []*Route{{Method: "GET", Path: "/v1/a"}, {Method: "GET", Path: "/v1/a", Native: "/millrace.v1.TaskService/Unknown", rule: edge.Public()}} {
		if err := setRules([]*Route{r}); err == nil || !strings.Contains(err.Error(), "GET /v1/a") {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func TestEveryRESTRouteReachesItsOwnTenantAlone(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	turns := []string{"acme", "rival", "acme"}
	for _, tenant := range turns {
		r.n.AddTask(r.t, tenant, apitest.ID(1))
	}
	eachRoute(t, func(rt *Route, s sampleRequest) {
		if rt.rule.Public || rt.Path == "/v1/status" || strings.HasPrefix(rt.Path, "/v1/embed") || strings.HasPrefix(rt.Path, "/v1/models") || strings.HasPrefix(rt.Path, "/v1/cluster") || strings.HasPrefix(rt.Path, "/v1/tenant") ||
			rt.ofSessions || rt.Path == "/v1/tasks:endclaim" || rt.Path == "/v1/crons:preview" {
			return // they reach no partition
		}
		for i, tenant := range turns {
			if rt.Streams && i == 2 {
				return // what was read for the first one is still known
			}
			got := r.n.ReachedBy(func() {
				r.send(r.request(rt.Method, s.path, tenant+"/all", s.body)).expect(t, rt.name(), s.status)
			})
			r.n.ExpectReached(r.t, rt.name(), tenant, got)
		}
	})
}

func TestAForeignTaskAnswersLikeAMissingOneInEveryByte(t *testing.T) {
	r := newRESTRig(t, edge.Limits{})
	r.n.AddTask(r.t, "acme", apitest.ID(1))
	r.n.AddTask(r.t, "rival", apitest.ID(2))
	bytesOf := func(path string) string {
		a := r.do(http.MethodGet, path, "").expect(t, path, http.StatusNotFound)
		a.header.Del("Date")
		var b strings.Builder
		if err := a.header.Write(&b); err != nil {
			t.Fatal(err)
		}
		return b.String() + a.body
	}
	for _, tail := range []string{"", "/result", "/result?wait=1s", "/attempts", "?view=meta", "/payload", "/output"} {
		path := "/v1/tasks/" + apitest.ID(2) + tail
		foreign := bytesOf(path)
		r.n.Mu.Lock()
		kept := r.n.Stored
		r.n.Stored = nil
		r.n.Mu.Unlock()
		missing := bytesOf(path)
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		nowhere := bytesOf(path + sep + "ns=never-made")
		r.n.Mu.Lock()
		r.n.Stored = kept
		r.n.Mu.Unlock()
		if foreign != missing || missing != nowhere {
			t.Errorf("%s:\nforeign %q\nmissing %q\nnowhere %q", tail, foreign, missing, nowhere)
		}
	}
	if ns, err := r.n.Namespace(context.Background(), "acme", "never-made", false); err == nil {
		t.Errorf("a read made a namespace: %v", ns)
	}
}
