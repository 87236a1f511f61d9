package rest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// Form is what a value looks like, in the words of JSON Schema. A value of another form is refused whatever it means; one of
// the form may still be refused for what it means. Expressions are read alike by RE2, ECMA 262 and Python. Bounds that are
// limits of the server's configuration are their defaults. In a list, words about texts hold for its elements.
type Form struct {
	// Pattern is an expression that the text matches, Not one that it does not match.
	Pattern string
	Not     string
	// MinLength and MaxLength count characters; 0: unbounded.
	MinLength, MaxLength int64
	// Minimum, Maximum and MultipleOf are of numbers; empty: unbounded.
	Minimum, Maximum json.Number
	MultipleOf       json.Number
	// Words is the whole set of texts.
	Words []string
	// MinItems and MaxItems are of a list; 0: unbounded.
	MinItems, MaxItems int64
	// Note is a bound in words, where no expression says it.
	Note     string
	Examples []string
}

// urlKeyBytes is how long a key may be in an address to be sure to fit, whatever must be escaped in it.
const urlKeyBytes = 4 * kib

// float32Max is the largest number of 32 bits.
const float32Max = "3.4028234663852886e38"

// Expressions of texts.
const (
	controls = `\x00-\x08\x0a-\x1f\x7f` // of a class: what text refuses
	// refBytes is of the characters of a ref's name that is not a separator; see core.CheckRefName.
	refBytes = `[^\x00-\x20\x7f~^:?*\[\\/]`
	// durations is what package time reads, without a sign.
	durations = `^(0|([0-9]{1,9}(\.[0-9]{1,9})?(ns|us|ms|s|m|h)){1,6})$`
	noDigits  = `^[^1-9]*$` // of a duration: it is 0
	// base64s ends with the padding that the last group needs, whose unused bits are 0. packed32s is
	// base64 of whole numbers of four bytes.
	base64s   = `^([0-9A-Za-z+/]{4})*([0-9A-Za-z+/][AQgw]==|[0-9A-Za-z+/]{2}[AEIMQUYcgkosw048]=)?$`
	packed32s = `^([0-9A-Za-z+/]{16})*([0-9A-Za-z+/]{5}[AQgw]==|[0-9A-Za-z+/]{10}[AEIMQUYcgkosw048]=)?$`
	// taskIDs is Crockford's base 32, of which the first digit has three bits.
	taskIDs = `^[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$`
)

// Forms that values of a body have which have no other. A text may not hold NUL; AnyUint64 is of numbers that are exact.
var (
	AnyText   = Form{Pattern: `^[^\x00]*$`}
	AnyInt64  = wholes[int64](math.MinInt64, math.MaxInt64)
	AnyUint64 = wholes[uint64](0, math.MaxUint64)
)

// Forms that several fields have.
var (
	// plainText is of names and headers: no control characters.
	plainText = Form{Pattern: `^[^` + controls + `]*$`}
	queueForm = Form{Pattern: names(`._:-`)}
	spaceForm = Form{Pattern: names(`._-`)}
	// An id that is 0 means none.
	taskForm = Form{Pattern: taskIDs, Not: `^0*$`}
	repoForm = Form{Pattern: names(`._-`), Not: `\.\.|\.git$|\.lock$`}
	refForm  = Form{Pattern: `^(HEAD|refs(/` + refBytes + `+)+)$`, Not: refRules(core.MaxRefComponents), MaxLength: core.MaxRefName}
	// refPathForm is of a path, which says refs/ itself.
	refPathForm  = below("refs/")
	globForm     = Form{Pattern: `^[^\x00]+$`, Not: fmt.Sprintf(`(\*[^*]*){%d}`, core.MaxRefStars+1), MaxLength: core.MaxRefGlob}
	objectForm   = Form{Pattern: `^[0-9a-f]{40}$`}
	objectOrNone = Form{Pattern: `^([0-9a-f]{40})?$`}
	repoIDForm   = Form{Pattern: `^[0-9A-Fa-f]{32}$`}
	// requestIDForm lets hyphens stand anywhere, as in a UUID. All digits 0 mean none.
	requestIDForm = Form{Pattern: fmt.Sprintf(`^(-*[0-9A-Fa-f]){%d}-*$`, 2*api.RequestIDBytes), Not: `^[0-]*$`}
	pointForm     = Form{Pattern: fmt.Sprintf(`^[^\x00-\x20\x7f]{1,%d}$`, api.NameBytes)}
	// versionForm is of a point: partition and number, or 0 for none.
	versionForm = Form{Pattern: `^` + digitsUpTo(math.MaxUint64) + `/` + digitsUpTo(math.MaxUint64) + `$|^0$`}
	fieldForm   = Form{Pattern: fmt.Sprintf(`^[A-Za-z_][0-9A-Za-z_]{0,%d}$`, api.NameBytes-1)}
	rulesetForm = Form{Pattern: strings.TrimSuffix(names(`._-`), `$`) + `(@` + positiveUpTo(math.MaxUint32) + `)?$`}
	// etagForm is a version, in the quotes of an ETag or without.
	etagForm      = Form{Pattern: `^(` + digitsUpTo(math.MaxInt64) + `|"` + digitsUpTo(math.MaxInt64) + `")$`}
	cursorForm    = Form{Pattern: `^[0-9A-Za-z_-]*$`, MaxLength: api.CursorBytes}
	stalenessForm = Form{Pattern: durations, Not: noDigits, Examples: []string{"1.5s", "90s"}}
	keyForm       = plainText.filled().upTo(defaults.UniqueKeyBytes)
	laneForm      = plainText.filled().upTo(core.MaxKey)
	reasonForm    = plainText.upTo(core.MaxReason)
	labelQuery    = Form{Pattern: fmt.Sprintf(`^[0-9A-Za-z][0-9A-Za-z._/-]{0,%d}=[^`+controls+`]{0,%d}$`, core.MaxLabelName-1, core.MaxLabelValue)}
	labelForm     = Form{MaxLength: core.MaxLabelValue, Pattern: plainText.Pattern}
	// A token counts from 1.
	tokenForm = wholes[uint64](1, math.MaxUint64)
)

// names is the expression of a name: up to NameBytes letters, digits and others, of which the others do not come first.
func names(others string) string {
	return fmt.Sprintf(`^[0-9A-Za-z][0-9A-Za-z%s]{0,%d}$`, others, api.NameBytes-1)
}

// refRules is the expression of what no name of a ref has, which has up to a number of components.
func refRules(components int) string {
	return fmt.Sprintf(`\.\.|@\{|\.lock(/|$)|(^|/)\.|\.$|[^/]{%d}|(/[^/]*){%d}`, core.MaxRefComponent+1, components)
}

// below is the form of the rest of a ref's name after a prefix.
func below(prefix string) Form {
	return Form{
		Pattern: `^` + refBytes + `+(/` + refBytes + `+)*$`, Not: refRules(core.MaxRefComponents - strings.Count(prefix, "/")),
		MaxLength: core.MaxRefName - int64(len(prefix)),
	}
}

// digitsUpTo is the expression of the decimal numbers from 0 to top, without zeros in front.
func digitsUpTo(top uint64) string { return `(0|` + positiveUpTo(top) + `)` }

// positiveUpTo is digitsUpTo from 1 on.
func positiveUpTo(top uint64) string {
	// JSON Schema has no bounds for numbers in texts, so the expression lists them: all shorter
	// numbers, and for each digit those that are lower there.
	digits := strconv.FormatUint(top, 10)
	ways := []string{fmt.Sprintf(`[1-9][0-9]{0,%d}`, len(digits)-2)} // all that are shorter
	for i, d := range digits {
		least := '0'
		if i == 0 {
			least = '1'
		}
		// No number is lower at this digit.
		if d == least {
			continue
		}
		ways = append(ways, fmt.Sprintf(`%s[%c-%c][0-9]{%d}`, digits[:i], least, d-1, len(digits)-i-1))
	}
	return `(` + strings.Join(append(ways, digits), `|`) + `)`
}

// wholes is the form of a whole number. Where it is written as a text, the text has the same bounds.
// Other bounds than 0 and 1 have no expression: such numbers are never written as texts.
func wholes[T int64 | uint64](low, high T) Form {
	f := Form{Minimum: json.Number(fmt.Sprint(low)), Maximum: json.Number(fmt.Sprint(high))}
	if low == 0 {
		f.Pattern = `^` + digitsUpTo(uint64(high)) + `$`
	}
	if low == 1 {
		f.Pattern = `^` + positiveUpTo(uint64(high)) + `$`
	}
	return f
}

// between is the form of a number that may have decimals.
func between(low, high string) Form {
	return Form{Minimum: json.Number(low), Maximum: json.Number(high)}
}

// upTo bounds the length of a text.
func (f Form) upTo(length int64) Form {
	f.MaxLength = length
	return f
}

// filled has a text be not empty.
func (f Form) filled() Form {
	f.MinLength = 1
	return f
}

// many bounds the length of a list.
func (f Form) many(low, high int64) Form {
	f.MinItems, f.MaxItems = low, high
	return f
}

// spans is the form of a duration.
func spans(s api.Span) Form {
	f := Form{Pattern: durations, Note: fmt.Sprintf("From %s to %s.", showSpan(s.Min), showSpan(s.Max))}
	if s.Min > 0 {
		f.Not = noDigits
	}
	// Examples that are within the bounds.
	for _, example := range []string{"1.5s", "90s", "1h30m"} {
		if d, _ := time.ParseDuration(example); d.Milliseconds() <= s.Max {
			f.Examples = append(f.Examples, example)
		}
	}
	return f
}

// showSpan writes a time in milliseconds as clients write it; long ones with their days.
func showSpan(ms int64) string {
	switch {
	case ms > 0 && ms%day == 0:
		return fmt.Sprintf("%dh (%d days)", ms/hour, ms/day)
	case ms == 0:
		return "0s"
	}
	return (time.Duration(ms) * time.Millisecond).String()
}

// words is the form of a text of a closed set.
func words(list ...string) Form { return Form{Words: list} }

// defaults are the limits that a server has which is told nothing else.
var defaults = func() *edge.Limits {
	l, err := edge.Limits{}.WithDefaults()
	if err != nil {
		panic(err) // the table of limits contradicts itself: no server could be made either
	}
	return &l
}()

// PathForm is the form of a parameter of a route's path.
func (r *Route) PathForm(name string) Form {
	switch name {
	case "id":
		return taskForm
	case "queue", "cron", "limiter":
		return queueForm
	case "worker":
		return plainText.filled().upTo(defaults.WorkerBytes)
	case "keyspace", "collection", "tenant":
		return spaceForm
	case "repo":
		return repoForm
	case "name":
		return refPathForm
	case "ruleset":
		if r.Method == http.MethodDelete {
			return spaceForm // no version: all go
		}
		return rulesetForm
	case "key":
		return Form{MinLength: 1, MaxLength: urlKeyBytes, Note: "Give longer ones in the body of another route."}
	}
	return Form{}
}

// VectorForms are the forms of a vector: a list of numbers, and base64 of such.
func VectorForms() (list, packed Form) {
	list = between("-"+float32Max, float32Max).many(1, vectorTop)
	return list, Form{Pattern: packed32s, MaxLength: base64Len(4 * vectorTop)}.filled()
}

// FieldForms lists the forms of the fields of bodies, as message and field; one without a message holds for all messages of
// requests. Those that stand in a schema of requests hold for requests; a field without a row is any value of its type.
func FieldForms() map[string]Form {
	out := make(map[string]Form)
	for _, list := range []map[string]Form{taskForms(defaults), keyForms(defaults), configForms(defaults), refForms(), searchForms(defaults)} {
		for name, form := range list {
			out[name] = form
		}
	}
	return out
}

// taskForms are the forms of tasks, attempts and commits.
func taskForms(l *edge.Limits) map[string]Form {
	attempts, crashes, deliveries := wholes(0, l.Attempts), wholes(0, l.Crashes), wholes(0, l.Deliveries)
	return map[string]Form{
		"CronConfig.schedule": AnyText.filled().upTo(core.MaxSchedule), "CronConfig.zone": AnyText.upTo(core.MaxZone),
		"CronConfig.jitter": spans(api.Span{Max: core.MaxCronJitter, Limit: "cron_jitter"}), "TriggerCronRequest.id": taskForm,
		"PreviewCronRequest.schedule": AnyText.filled().upTo(core.MaxSchedule), "PreviewCronRequest.zone": AnyText.upTo(core.MaxZone), "PreviewCronRequest.count": wholes[int64](0, 100),
		"OpenBatchRequest.id": taskForm, "OpenBatchRequest.labels": labelForm, "OpenBatchRequest.tag": plainText.filled().upTo(l.TagBytes),
		"CancelBatchRequest.reason": reasonForm, "CancelBatchRequest.rate": wholes(0, int64(core.MaxBulkRate)), "TaskSpec.batch": taskForm, "TaskFilter.batch": taskForm,
		"StartBulkRequest.id": taskForm, "StartBulkRequest.priority": wholes(0, l.Priority), "StartBulkRequest.rate": wholes(0, int64(core.MaxBulkRate)),
		"StartBulkRequest.reason": reasonForm, "RedriveRequest.id": taskForm, "RedriveRequest.rate": wholes(0, int64(core.MaxBulkRate)), "RedriveRequest.reason": reasonForm, "RedriveRequest.kind": queueForm, "RedriveRequest.labels": labelForm,
		"StartBulkRequest.to_queue": queueForm, "RedriveRequest.to_queue": queueForm,
		"TaskFilter.queue": queueForm, "TaskFilter.kind": queueForm, "TaskFilter.worker": plainText.upTo(l.WorkerBytes),
		"TaskFilter.unique": plainText.upTo(l.UniqueKeyBytes), "TaskFilter.labels": labelForm, "TaskFilter.fingerprint": fingerprintForm,
		"TaskSpec.limiters": queueForm.many(0, core.MaxLimiters), "TaskTemplate.limiters": queueForm.many(0, core.MaxLimiters), "QueueConfig.limiters": queueForm.many(0, core.MaxLimiters),
		"LimiterConfig.concurrency": wholes[int64](0, core.MaxConcurrency),
		"TaskTemplate.queue":        queueForm, "TaskTemplate.kind": queueForm, "TaskTemplate.content_type": plainText.upTo(l.ContentTypeBytes),
		"TaskTemplate.headers": Form{}.many(0, l.Headers-2), "TaskTemplate.labels": labelForm, "TaskTemplate.priority": wholes(0, l.Priority),
		"TaskTemplate.max_attempts": attempts, "TaskTemplate.max_crashes": crashes, "TaskTemplate.max_deliveries": deliveries,
		"TaskTemplate.lease": spans(api.LeaseSpan(l)), "TaskTemplate.max_run": spans(api.PositiveSpan(l)), "TaskTemplate.tag": plainText.filled().upTo(l.TagBytes),
		"TaskTemplate.key": laneForm, "TaskTemplate.cost": wholes[int64](0, core.MaxCost),
		"TaskTemplate.payload_base64": base64Form(l.PayloadBytes),
		"TaskSpec.id":                 taskForm, "TaskSpec.queue": queueForm, "TaskSpec.kind": queueForm, "TaskSpec.content_type": plainText.upTo(l.ContentTypeBytes),
		"TaskSpec.headers": Form{}.many(0, l.Headers), "TaskSpec.after": Form{}.many(0, core.MaxAfter), "After.id": taskForm, "TaskSpec.labels": labelForm, "BatchGetRequest.ids": taskForm.many(1, 100), "UpdateRequest.request_id": requestIDForm,
		"ClaimRequest.claim": requestIDForm, "EndClaimRequest.claim": requestIDForm,
		"CancelRequest.request_id": requestIDForm, "RetryRequest.request_id": requestIDForm, "ForceReleaseRequest.request_id": requestIDForm, "UpdateRequest.labels": labelForm,
		"UpdateRequest.priority": wholes(0, l.Priority), "UpdateRequest.delay": spans(api.HorizonSpan(l)), "UpdateRequest.content_type": plainText.upTo(l.ContentTypeBytes),
		"UpdateRequest.payload_base64": base64Form(l.PayloadBytes), "CancelRequest.reason": reasonForm, "PauseQueueRequest.reason": reasonForm,
		"BatchOpen.id": taskForm, "BatchOpen.labels": labelForm, "BatchOpen.tag": plainText.filled().upTo(l.TagBytes), "BatchSeal.id": taskForm,
		"BatchCancel.id": taskForm, "BatchCancel.reason": reasonForm, "BatchCancel.rate": wholes(0, int64(core.MaxBulkRate)), "TaskCancel.id": taskForm, "TaskCancel.reason": reasonForm, "QueuePause.queue": queueForm, "QueuePause.reason": reasonForm, "TaskSpec.priority": wholes(0, l.Priority), "TaskSpec.delay": spans(api.HorizonSpan(l)),
		"TaskSpec.max_attempts": attempts, "TaskSpec.max_crashes": crashes, "TaskSpec.max_deliveries": deliveries,
		"TaskSpec.lease": spans(api.LeaseSpan(l)), "TaskSpec.max_run": spans(api.PositiveSpan(l)), "TaskSpec.tag": plainText.filled().upTo(l.TagBytes),
		"TaskSpec.key": laneForm, "TaskSpec.cost": wholes[int64](0, core.MaxCost), "PauseKeyRequest.reason": reasonForm,
		"Rate.limit": wholes[int64](1, core.MaxRate), "Rate.per": spans(api.Span{Min: 1, Max: core.MaxRatePer}), "Rate.burst": wholes[int64](0, core.MaxRate),
		"KeyLimits.concurrency": wholes[int64](0, core.MaxConcurrency), "KeySettings.concurrency": wholes[int64](0, core.MaxConcurrency),
		"KeySettings.weight": wholes[int64](0, core.MaxWeight), "QueueConfig.concurrency": wholes[int64](0, core.MaxConcurrency),
		"QueueConfig.max_workers": wholes[int64](0, math.MaxInt32),
		"TaskSpec.payload_base64": base64Form(l.PayloadBytes), "Header.name": plainText.filled().upTo(l.HeaderBytes), "Header.value": plainText.upTo(l.HeaderBytes),
		"Retry.base": spans(api.PositiveSpan(l)), "Retry.max": spans(api.PositiveSpan(l)),
		"Retry.factor": {Minimum: "1", Maximum: json.Number(strconv.FormatInt(l.RetryFactor, 10)), MultipleOf: "0.01"},
		"Unique.key":   plainText.filled().upTo(l.UniqueKeyBytes), "Unique.ttl": spans(api.Span{Min: 1, Max: l.UniqueTTLMs}),
		"BatchCreateRequest.tasks": Form{}.many(1, l.FrameItems), "SettleRequest.items": Form{}.many(1, l.FrameItems), "HeartbeatRequest.items": Form{}.many(1, l.FrameItems),
		"ClaimRequest.queues": queueForm.many(1, l.ClaimQueues), "ClaimRequest.max": wholes(0, l.ClaimTasks), "ClaimRequest.lease": spans(api.LeaseSpan(l)),
		"ClaimRequest.wait": spans(api.Span{Max: l.ClaimWaitMs}), "ClaimRequest.worker": plainText.upTo(l.WorkerBytes), "ClaimRequest.partition": wholes(0, l.Partitions-1),
		"QueueWeight.name": queueForm, "QueueWeight.weight": wholes[int64](0, core.MaxWeight), "Hold.id": taskForm, "Hold.token": tokenForm,
		"SettleItem.id": taskForm, "SettleItem.token": tokenForm, "Fence.task": taskForm, "Fence.token": tokenForm,
		"Complete.result_base64": base64Form(l.ResultBytes), "Complete.result_type": plainText.upTo(l.ContentTypeBytes),
		"Progress.message": {}, "Progress.percent": wholes(0, int64(100)), "ReportRequest.id": taskForm, "ReportRequest.token": tokenForm,
		"TaskError.code": {}, "TaskError.message": {}, "TaskError.stack": {}, // any text: what tells of a failure is cut, and never refused
		"Fail.retry_after": spans(api.Span{Max: l.RetryAfterMs}), "Snooze.delay": spans(api.HorizonSpan(l)), "HeartbeatRequest.extend": spans(api.LeaseSpan(l)),
		"CommitRequest.request_id": requestIDForm, "CommitRequest.ops": Form{}.many(1, l.CommitOps), "CommitRequest.conditions": Form{}.many(0, l.CommitOps),
		"Effects.ops": Form{}.many(0, l.CommitOps), "Effects.conditions": Form{}.many(0, l.CommitOps),
	}
}

// base64Len is how long the base64 of n bytes is.
func base64Len(n int64) int64 { return int64(base64.StdEncoding.EncodedLen(int(n))) }

// base64Form is the form of base64 of at most top bytes.
func base64Form(top int64) Form { return Form{Pattern: base64s, MaxLength: base64Len(top)} }

// keyForms are the forms of keys and values. A key has the same form in every message.
func keyForms(l *edge.Limits) map[string]Form {
	out := map[string]Form{
		".keyspace": spaceForm, ".key": AnyText.filled().upTo(l.KeyBytes), ".key_base64": base64Form(l.KeyBytes).filled(),
		"KVPut.value": AnyText.upTo(l.ValueBytes), "KVPut.value_base64": base64Form(l.ValueBytes),
		"KVCheck.value": AnyText.upTo(l.ValueBytes), "KVCheck.value_base64": base64Form(l.ValueBytes),
		"KVBatchGetRequest.keys": AnyText.filled().upTo(l.KeyBytes).many(1, api.BatchGetKeys), "KVBatchGetRequest.keys_base64": base64Form(l.KeyBytes).filled().many(1, api.BatchGetKeys),
		"KVBatchGetRequest.max_staleness": stalenessForm,
	}
	for _, bound := range []string{"from", "to", "prefix"} {
		out["KVDeleteRange."+bound], out["KVDeleteRange."+bound+"_base64"] = AnyText.upTo(l.KeyBytes), base64Form(l.KeyBytes)
	}
	return out
}

// configForms are the forms of configurations, and of changes of the cluster.
func configForms(l *edge.Limits) map[string]Form {
	bytes := wholes[int64](0, api.MaxQuota)
	return map[string]Form{
		"QueueConfig.version": AnyUint64, "QueueConfig.max_attempts": wholes(0, l.Attempts), "QueueConfig.max_crashes": wholes(0, l.Crashes),
		"QueueConfig.max_deliveries": wholes(0, l.Deliveries), "QueueConfig.lease": spans(api.LeaseSpan(l)), "QueueConfig.max_run": spans(api.PositiveSpan(l)),
		"QueueConfig.max_payload": wholes(0, l.PayloadBytes), "QueueConfig.aging": spans(api.HorizonSpan(l)), "QueueConfig.retain_completed": spans(api.HorizonSpan(l)),
		"QueueConfig.retain_cancelled": spans(api.HorizonSpan(l)), "QueueConfig.retain_dead": spans(api.HorizonSpan(l)),
		"QueueConfig.cancel_grace": spans(api.Span{Max: core.MaxCancelGrace}), "QueueConfig.default_ttl": spans(api.PositiveSpan(l)),
		"QueueConfig.dead_letter": queueForm,
		"QueueConfig.max_tasks":   wholes[int64](0, math.MaxInt64), "QueueConfig.max_bytes": wholes[int64](0, math.MaxInt64),
		"QueueCeilings.max_attempts": wholes(0, l.Attempts), "QueueCeilings.max_crashes": wholes(0, l.Crashes),
		"QueueCeilings.max_deliveries": wholes(0, l.Deliveries), "QueueCeilings.lease": spans(api.LeaseSpan(l)),
		"QueueCeilings.max_run": spans(api.PositiveSpan(l)), "QueueCeilings.priority": wholes(0, l.Priority),
		"NamespaceConfig.version": AnyUint64, "NamespaceConfig.retain_bytes": wholes[int64](0, math.MaxInt64), "NamespaceConfig.key_bytes": bytes,
		"NamespaceConfig.key_writes_per_second": bytes, "NamespaceConfig.key_bytes_per_second": bytes,
		"TenantConfig.version": AnyUint64, "TenantConfig.key_bytes": bytes, "TenantConfig.key_writes_per_second": bytes, "TenantConfig.key_bytes_per_second": bytes,
		"TenantConfig.weight": wholes[int64](0, core.MaxTenantWeight), "TenantConfig.task_creates_per_second": bytes, "TenantConfig.streams": bytes,
		"TenantConfig.tasks": bytes, "TenantConfig.task_bytes": bytes, "TenantConfig.running_tasks": bytes,
		"KeyspaceConfig.version": AnyUint64, "KeyspaceQuota.bytes": bytes, "KeyspaceQuota.writes_per_second": bytes, "KeyspaceQuota.bytes_per_second": bytes,
		"CreateNamespaceRequest.partitions": wholes(0, l.Partitions),
		"ChangeMembersRequest.node":         wholes[uint64](1, math.MaxUint64), "ChangeMembersRequest.with": wholes[uint64](1, math.MaxUint64),
		"TransferShardRequest.shard": wholes[int64](0, api.MaxShard), "TransferShardRequest.to": wholes[uint64](1, math.MaxUint64),
	}
}

// refForms are the forms of repositories and refs.
func refForms() map[string]Form {
	message := plainText.upTo(core.MaxRefMessage)
	changes := Form{}.many(1, core.MaxRefChanges)
	bytes := wholes[int64](0, math.MaxInt64)
	tag := plainText.filled().upTo(core.MaxRuleName)
	return map[string]Form{
		"CreateRepoRequest.name": repoForm, "CreateRepoRequest.tag": tag, "CreateRepoRequest.request_id": requestIDForm, "UpdateRefsRequest.request_id": requestIDForm,
		"CreateRepoRequest.default_branch": below("refs/heads/"), "UpdateRepoRequest.default_branch": below("refs/heads/"), "UndeleteRepoRequest.id": repoIDForm,
		"RepoConfig.version": AnyUint64, "RepoConfig.hide": globForm.many(0, core.MaxRepoHide), "RepoConfig.rules": Form{}.many(0, core.MaxRepoRules),
		"RepoConfig.reflog_days": wholes[int64](0, core.MaxReflogDays), "RepoConfig.reflog_max": wholes[int64](0, core.MaxReflogItems),
		"RepoConfig.max_bytes": bytes, "RepoConfig.max_push": bytes, "RefRule.refs": globForm, "RefRule.queue": AnyText.upTo(core.MaxRuleName),
		"RefRule.deny": Form{}.many(0, int64(len(refRuleDenyWords))), "RefRule.except": AnyText.filled().upTo(core.MaxRuleName).many(0, core.MaxRuleNames),
		"BatchGetRefsRequest.names": refForm.many(1, maxRESTTexts), "UpdateRefsRequest.changes": changes, "UpdateRefsRequest.message": message,
		"UpdateRefsRequest.conditions": Form{}.many(0, defaults.CommitOps),
		"RefChange.name":               refForm, "RefChange.old": objectOrNone, "RefChange.new": objectOrNone, "RefChange.message": message,
		"RefTransaction.repo": repoForm, "RefTransaction.changes": changes, "RefTransaction.message": message, "RefTransaction.tag": tag,
	}
}

// searchForms are the forms of collections, points, rulesets and searches.
func searchForms(l *edge.Limits) map[string]Form {
	horizon := spans(api.Span{Min: 1, Max: l.HorizonMs})
	params := Form{}
	names := AnyText.many(0, l.GateNames)
	weight := between("0", strconv.FormatFloat(api.WeightMax, 'f', -1, 64))
	return map[string]Form{
		"Collection.name": spaceForm, "Collection.dim": wholes[int64](0, core.MaxDim), "Collection.max_points": wholes[int64](0, math.MaxInt64),
		"Collection.embedder": AnyText.filled().upTo(core.MaxModelName), "Collection.model": AnyText.filled().upTo(core.MaxModelName), "Point.model": AnyText.filled(),
		"SearchRequest.model": AnyText.filled(), "EmbedRequest.model": AnyText.filled(), "Gate.client": AnyText.filled(),
		"Collection.text_fields": Form{}.many(0, core.MaxTextFields), "Collection.schema": Form{}.many(0, core.MaxCollectionFields),
		"TextField.name": fieldForm, "TextField.weight": between("0.01", "10"), "SchemaField.name": fieldForm,
		"Point.id": pointForm, "Point.if_version": versionForm, "PointVersion.id": pointForm, "PointVersion.if_version": versionForm,
		"VectorUpsert.collection": spaceForm, "VectorDelete.collection": spaceForm, "VectorDelete.id": pointForm, "VectorDelete.if_version": versionForm,
		"UpsertPointsRequest.points": Form{}.many(1, l.PointsRequest), "DeletePointsRequest.points": Form{}.many(1, l.PointsRequest),
		"GetPointsRequest.ids": pointForm.many(1, l.PointsRequest), "GetPointsRequest.min_index": AnyUint64, "CountPointsRequest.min_index": AnyUint64,
		"Gate.roles": names, "Gate.credentials_all": names, "Gate.role_mode": words(gateRoleModeWords...), "Gate.filter": AnyText.filled().upTo(l.FilterBytes), "Gate.params": params,
		"Gate.ids_in": AnyText.many(1, l.GateIDs), "Gate.ids_not_in": AnyText.many(0, l.GateIDs),
		"PutRulesetRequest.collection": spaceForm, "PutRulesetRequest.rules": Form{}.many(1, l.RulesetRules), "PutRulesetRequest.number": wholes[int64](0, math.MaxUint32),
		"Rule.severity": words(ruleSeverityWords...), "Rule.on_missing": words(ruleOnMissingWords...), "Rule.weight": between("0", "2"),
		"EmbedRequest.text": AnyText.filled().upTo(l.EmbedBytes), "EmbedRequest.texts": AnyText.filled().many(1, l.EmbedTexts),
		"EmbedRequest.kind": words(embedRequestKindWords...), "EmbedRequest.truncate": words(embedRequestTruncateWords...),
		"SearchRequest.collection": spaceForm, "SearchRequest.query_text": AnyText.filled().upTo(l.QueryTextBytes), "SearchRequest.k": wholes(0, l.SearchK),
		"SearchRequest.consistency": words(searchRequestConsistencyWords...), "SearchRequest.min_index": AnyUint64, "SearchRequest.candidates": wholes(0, l.SearchCandidates),
		"SearchRequest.ef": {Minimum: json.Number(strconv.Itoa(api.SearchWidthMin)), Maximum: json.Number(strconv.Itoa(api.SearchWidthMax))}, "SearchRequest.timeout": spans(api.Span{Min: 1, Max: l.SearchTimeoutMs}),
		"Judge.ruleset": rulesetForm, "Judge.include": words(judgeIncludeWords...), "Merge.method": words(mergeMethods...), "Merge.dense": weight, "Merge.lexical": weight,
		"Decay.field": fieldForm, "Decay.half_life": horizon,
	}
}
