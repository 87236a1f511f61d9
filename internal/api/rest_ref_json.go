package api

import (
	"math"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
)

// Repositories and refs as JSON.

var (
	repoStateWords = []string{"ready", "importing", "archived"}
	denyWords      = []string{"", "create", "update", "delete", "force"}
	onlyWords      = []string{"any", "api", "push", "effects"}
	refTypeWords   = []string{"", "commit", "tree", "blob", "tag"}
	refKindWords   = []string{
		"", "create", "update", "delete", "verify", "symref_create", "symref_update", "symref_delete", "symref_verify",
	}
)

const (
	maxRESTTexts = 1000 // of a list of names or globs
	maxListGlobs = 64   // that a list of refs is asked for
)

func readTexts(d *jsonReader) (out []string) {
	d.array("texts", maxRESTTexts, func() { out = append(out, d.text()) })
	return out
}

var refRuleFields = []jsonField[pb.RefRule]{
	{"refs", func(d *jsonReader, m *pb.RefRule) { m.Refs = d.text() }},
	{"deny", func(d *jsonReader, m *pb.RefRule) {
		d.array("deny", int64(len(denyWords)), func() { m.Deny = append(m.Deny, pb.RefRule_Deny(d.oneOf(denyWords))) })
	}},
	{"except", func(d *jsonReader, m *pb.RefRule) { m.Except = readTexts(d) }},
	{"only", func(d *jsonReader, m *pb.RefRule) { m.Only = pb.RefRule_Only(d.oneOf(onlyWords)) }},
	{"queue", func(d *jsonReader, m *pb.RefRule) { m.Queue = d.text() }},
}

var repoConfigFields = []jsonField[pb.RepoConfig]{
	{"version", func(d *jsonReader, m *pb.RepoConfig) { m.Version = d.unsigned() }},
	{"state", func(d *jsonReader, m *pb.RepoConfig) { m.State = pb.Repo_State(d.oneOf(repoStateWords)) }},
	{"hide", func(d *jsonReader, m *pb.RepoConfig) { m.Hide = readTexts(d) }},
	{"rules", func(d *jsonReader, m *pb.RepoConfig) {
		d.array("rules", core.MaxRepoRules, func() { m.Rules = append(m.Rules, readNew(d, refRuleFields)) })
	}},
	{"reflog_days", func(d *jsonReader, m *pb.RepoConfig) { m.ReflogDays = d.int32() }},
	{"reflog_max", func(d *jsonReader, m *pb.RepoConfig) { m.ReflogMax = d.int32() }},
	{"max_bytes", func(d *jsonReader, m *pb.RepoConfig) { m.MaxBytes = d.integer(math.MinInt64, math.MaxInt64) }},
	{"max_push", func(d *jsonReader, m *pb.RepoConfig) { m.MaxPush = d.integer(math.MinInt64, math.MaxInt64) }},
}

var createRepoFields = []jsonField[pb.CreateRepoRequest]{
	{"name", func(d *jsonReader, m *pb.CreateRepoRequest) { m.Name = d.text() }},
	{"tag", func(d *jsonReader, m *pb.CreateRepoRequest) { m.Tag = d.filled() }},
	{"default_branch", func(d *jsonReader, m *pb.CreateRepoRequest) { m.DefaultBranch = d.filled() }},
	{"config", func(d *jsonReader, m *pb.CreateRepoRequest) { m.Config = readNew(d, repoConfigFields) }},
	{"request_id", func(d *jsonReader, m *pb.CreateRepoRequest) { m.RequestId = d.requestID() }},
}

var updateRepoFields = []jsonField[pb.UpdateRepoRequest]{
	{"config", func(d *jsonReader, m *pb.UpdateRepoRequest) { m.Config = readNew(d, repoConfigFields) }},
	{"default_branch", func(d *jsonReader, m *pb.UpdateRepoRequest) { m.DefaultBranch = d.filled() }},
}

var undeleteRepoFields = []jsonField[pb.UndeleteRepoRequest]{
	{"id", func(d *jsonReader, m *pb.UndeleteRepoRequest) { m.Id = d.filled() }},
}

var batchRefFields = []jsonField[pb.BatchGetRefsRequest]{
	{"names", func(d *jsonReader, m *pb.BatchGetRefsRequest) { m.Names = readTexts(d) }},
	{"peel", func(d *jsonReader, m *pb.BatchGetRefsRequest) { m.Peel = d.boolean() }},
}

var refChangeFields = []jsonField[pb.RefChange]{
	{"kind", func(d *jsonReader, m *pb.RefChange) { m.Kind = pb.RefChange_Kind(d.oneOf(refKindWords)) }},
	{"name", func(d *jsonReader, m *pb.RefChange) { m.Name = d.text() }},
	{"old", func(d *jsonReader, m *pb.RefChange) { m.Old = new(d.text()) }},
	{"new", func(d *jsonReader, m *pb.RefChange) { m.New = d.text() }},
	{"target", func(d *jsonReader, m *pb.RefChange) { m.Target = d.text() }},
	{"old_target", func(d *jsonReader, m *pb.RefChange) { m.OldTarget = new(d.text()) }},
	{"no_deref", func(d *jsonReader, m *pb.RefChange) { m.NoDeref = d.boolean() }},
	{"missing_ok", func(d *jsonReader, m *pb.RefChange) { m.MissingOk = d.boolean() }},
	{"message", func(d *jsonReader, m *pb.RefChange) { m.Message = d.text() }},
}

func readRefChanges(d *jsonReader) (out []*pb.RefChange) {
	d.array("ref_changes", core.MaxRefChanges, func() { out = append(out, readNew(d, refChangeFields)) })
	return out
}

var refTransactionFields = []jsonField[pb.RefTransaction]{
	{"repo", func(d *jsonReader, m *pb.RefTransaction) { m.Repo = d.text() }},
	{"changes", func(d *jsonReader, m *pb.RefTransaction) { m.Changes = readRefChanges(d) }},
	{"message", func(d *jsonReader, m *pb.RefTransaction) { m.Message = d.text() }},
	{"tag", func(d *jsonReader, m *pb.RefTransaction) { m.Tag = d.filled() }},
}

var updateRefsFields = []jsonField[pb.UpdateRefsRequest]{
	{"changes", func(d *jsonReader, m *pb.UpdateRefsRequest) { m.Changes = readRefChanges(d) }},
	{"conditions", func(d *jsonReader, m *pb.UpdateRefsRequest) { m.Conditions = readConditions(d) }},
	{"request_id", func(d *jsonReader, m *pb.UpdateRefsRequest) { m.RequestId = d.requestID() }},
	{"message", func(d *jsonReader, m *pb.UpdateRefsRequest) { m.Message = d.text() }},
	{"allow_partial", func(d *jsonReader, m *pb.UpdateRefsRequest) { m.AllowPartial = d.boolean() }},
}

func writeTexts(w *jsonWriter, name string, list []string) {
	if len(list) == 0 {
		return
	}
	w.list(name, len(list), func(i int) {
		w.sep()
		w.quote(list[i])
	})
}

func writeRepo(w *jsonWriter, r *pb.Repo) {
	w.str("name", r.GetName())
	w.str("id", r.GetId())
	w.optStr("tag", r.GetTag())
	w.object("config", func() { writeRepoConfig(w, r.GetConfig()) })
	w.optStr("default_branch", r.GetDefaultBranch())
	w.time("created_at", r.GetCreatedAt())
	w.optStr("created_by", r.GetCreatedBy())
	w.time("deleted_at", r.GetDeletedAt())
	w.exact("rev", r.GetRev())
	w.int("refs", r.GetRefs())
	w.int("packs", r.GetPacks())
	w.int("bytes", r.GetBytes())
}

func writeRepoConfig(w *jsonWriter, c *pb.RepoConfig) {
	w.exact("version", c.GetVersion())
	w.str("state", wordOf(repoStateWords, int32(c.GetState())))
	writeTexts(w, "hide", c.GetHide())
	if len(c.GetRules()) > 0 {
		w.list("rules", len(c.GetRules()), func(i int) {
			r := c.GetRules()[i]
			w.open('{')
			w.str("refs", r.GetRefs())
			deny := make([]string, len(r.GetDeny()))
			for i, d := range r.GetDeny() {
				deny[i] = wordOf(denyWords, int32(d))
			}
			writeTexts(w, "deny", deny)
			writeTexts(w, "except", r.GetExcept())
			w.str("only", wordOf(onlyWords, int32(r.GetOnly())))
			w.optStr("queue", r.GetQueue())
			w.close('}')
		})
	}
	w.optInt("reflog_days", int64(c.GetReflogDays()))
	w.optInt("reflog_max", int64(c.GetReflogMax()))
	w.optInt("max_bytes", c.GetMaxBytes())
	w.optInt("max_push", c.GetMaxPush())
}

func writeRef(w *jsonWriter, r *pb.Ref) {
	w.str("name", r.GetName())
	w.optStr("id", r.GetId())
	w.optStr("type", wordOf(refTypeWords, int32(r.GetType())))
	w.optStr("peeled", r.GetPeeled())
	w.optStr("target", r.GetTarget())
	w.exact("rev", r.GetRev())
}

func writeRefs(w *jsonWriter, refs []*pb.Ref) {
	w.list("refs", len(refs), func(i int) {
		w.open('{')
		writeRef(w, refs[i])
		w.close('}')
	})
}

func writeChanged(w *jsonWriter, list []*pb.RefChanged) {
	w.list("results", len(list), func(i int) {
		r := list[i]
		w.open('{')
		w.optStr("old", r.GetOld())
		w.optStr("new", r.GetNew())
		if e := r.GetError(); e != nil {
			writeError(w, e)
		}
		w.close('}')
	})
}

// writeMoved shows what became of a transaction of refs within a commit.
func writeMoved(w *jsonWriter, m *pb.RefsMoved) {
	if m == nil {
		return
	}
	w.object("refs", func() {
		w.list("changes", len(m.GetChanges()), func(i int) {
			w.open('{')
			w.optStr("old", m.GetChanges()[i].GetOld())
			w.optStr("new", m.GetChanges()[i].GetNew())
			w.close('}')
		})
		w.exact("rev", m.GetRev())
	})
}

func writeLogEntry(w *jsonWriter, e *pb.RefLogEntry) {
	w.optStr("old", e.GetOld())
	w.optStr("new", e.GetNew())
	w.optStr("old_target", e.GetOldTarget())
	w.optStr("new_target", e.GetNewTarget())
	w.str("principal", e.GetPrincipal())
	w.str("cause", e.GetCause())
	w.optStr("request", e.GetRequest())
	w.optStr("task", e.GetTask())
	if e.GetToken() != 0 {
		w.exact("token", e.GetToken())
	}
	w.optStr("message", e.GetMessage())
	w.time("time", e.GetTime())
	w.exact("index", e.GetIndex())
	w.exact("rev", e.GetRev())
}

// writeFailures shows why a transaction of refs was refused, change by change.
func writeFailures(w *jsonWriter, list []*pb.Failure) {
	if len(list) == 0 {
		return
	}
	w.list("failures", len(list), func(i int) {
		f := list[i]
		w.open('{')
		w.int("change", int64(f.GetChange()))
		w.str("code", f.GetCode())
		w.optStr("reason", f.GetReason())
		w.str("message", f.GetMessage())
		if len(f.GetDetails()) > 0 {
			w.texts("details", f.GetDetails())
		}
		w.close('}')
	})
}
