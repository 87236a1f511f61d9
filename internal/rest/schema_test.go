package rest

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
)

// shown is what writes a message: it returns the message, empty, and what writes it as it is then.
type shown func() (m proto.Message, write func(w *jsonWriter))

func shows[M any](write func(*jsonWriter, *M)) shown {
	return func() (proto.Message, func(w *jsonWriter)) {
		m := new(M)
		return any(m).(proto.Message), func(w *jsonWriter) { write(w, m) }
	}
}

// allShown has what writes each message of an answer, by the name of its schema or, in shownUnder, of the message.
var allShown = map[string]shown{
	"CreateResponse": shows(writeCreateResponse), "BatchCreateResponse": shows(writeBatchCreateResponse),
	"CreateResult": shows(writeCreateResult), "Error": shows(writeError), "Failure": shows(writeFailure), "Task": shows(writeTask),
	"Header": shows(writeHeader), "TaskError": shows(writeTaskError), "ListAttemptsResponse": shows(writeListAttemptsResponse),
	"Attempt": shows(writeAttempt), "OutcomeCount": shows(writeOutcomeCount), "ListResponse": shows(writeListResponse), "ClaimResponse": shows(writeClaimResponse),
	"Assignment": shows(writeAssignment), "HeartbeatResponse": shows(writeHeartbeatResponse),
	"HeartbeatResult": shows(writeHeartbeatResult), "SettleResponse": shows(writeSettleResponse),
	"SettleResult": shows(writeSettleResult), "OpResult": shows(writeOpResult), "RefsMoved": shows(writeRefsMoved),
	"RefMoved": shows(writeRefMoved), "RunNowResponse": shows(writeRunNowResponse), "DeleteResponse": shows(writeDeleteResponse),
	"CommitResponse": shows(writeCommitResponse), "ListQueuesResponse": shows(writeListQueuesResponse),
	"QueueStats": shows(writeQueueStats), "QueueRates": shows(writeQueueRates), "QueueLimits": shows(writeQueueLimits), "QueueConfig": shows(writeQueueConfig), "Retry": shows(writeRetry),
	"SetQueueResponse": shows(writeSetQueueResponse), "CreateNamespaceResponse": shows(writeCreateNamespaceResponse),
	"PartitionInfo": shows(writePartitionInfo), "DeleteNamespaceResponse": shows(writeDeleteNamespaceResponse),
	"GetNamespaceResponse": shows(writeGetNamespaceResponse), "NamespaceConfig": shows(writeNamespaceConfig),
	"SetNamespaceResponse": shows(writeSetNamespaceResponse), "KVBatchGetResponse": shows(writeKVBatchGetResponse),
	"KVRead": shows(writeKVRead), "KeyWriter": shows(writeKeyWriter), "KVPutResponse": shows(writeKVPutResponse), "KVDeleteResponse": shows(writeKVDeleteResponse),
	"KVDeleteRangeResponse": shows(writeKVDeleteRangeResponse), "SetKeyspaceResponse": shows(writeSetKeyspaceResponse),
	"GetKeyspaceResponse": shows(writeGetKeyspaceResponse), "KeyspaceStats": shows(writeKeyspaceStats),
	"KeyspaceConfig": shows(writeKeyspaceConfig), "KeyspaceQuota": shows(writeKeyspaceQuota),
	"ListKeyspacesResponse": shows(writeListKeyspacesResponse), "DeleteKeyspaceResponse": shows(writeDeleteKeyspaceResponse),
	"GetTenantResponse": shows(writeGetTenantResponse), "Refusals": shows(writeRefusals), "BoundRefusals": shows(writeBoundRefusals), "RefusalNode": shows(writeRefusalNode), "TenantConfig": shows(writeTenantConfig),
	"SetTenantResponse": shows(writeSetTenantResponse), "Repo": shows(writeRepo), "RepoConfig": shows(writeRepoConfig),
	"RefRule": shows(writeRefRule), "ListReposResponse": shows(writeListReposResponse),
	"UpdateRepoResponse": shows(writeUpdateRepoResponse), "DeleteRepoResponse": shows(writeDeleteRepoResponse),
	"UndeleteRepoResponse": shows(writeUndeleteRepoResponse), "Ref": shows(writeRef),
	"UpdateRefsResponse": shows(writeUpdateRefsResponse), "RefChanged": shows(writeRefChanged),
	"ReadReflogResponse": shows(writeReadReflogResponse), "RefLogEntry": shows(writeRefLogEntry), "ListActivityResponse": shows(writeListActivityResponse), "RefMove": shows(writeRefMove),
	"SetCollectionResponse": shows(writeSetCollectionResponse), "Collection": shows(writeCollection),
	"TextField": shows(writeTextField), "SchemaField": shows(writeSchemaField),
	"ListCollectionsResponse": shows(writeListCollectionsResponse), "DeleteCollectionResponse": shows(writeDeleteCollectionResponse),
	"CollectionStatsResponse": shows(writeCollectionStatsResponse), "UpsertPointsResponse": shows(writeUpsertPointsResponse),
	"UpsertResult": shows(writeUpsertResult), "DeletePointsResponse": shows(writeDeletePointsResponse),
	"DeleteResult": shows(writeDeleteResult), "GetPointsResponse": shows(writeGetPointsResponse),
	"StoredPoint": shows(writeStoredPoint), "CountPointsResponse": shows(writeCountPointsResponse),
	"GateCounts": shows(writeGateCounts), "BlockedBy": shows(writeBlockedBy), "PutRulesetResponse": shows(writePutRulesetResponse),
	"GetRulesetResponse": shows(writeGetRulesetResponse), "Rule": shows(writeRule),
	"ListRulesetsResponse": shows(writeListRulesetsResponse), "DeleteRulesetResponse": shows(writeDeleteRulesetResponse),
	"GetRecordingResponse": shows(writeGetRecordingResponse), "ClusterStatusResponse": shows(writeClusterStatusResponse),
	"Overview": shows(writeOverview), "Attention": shows(writeAttention),
	"TaskCounts": shows(writeTaskCounts), "WorkerSlots": shows(writeWorkerSlots), "SyncTimes": shows(writeSyncTimes),
	"HistoryResponse": shows(writeHistoryResponse), "HistorySeries": shows(writeHistorySeries), "HistoryGap": shows(writeHistoryGap),
	"ClusterDisk": shows(writeClusterDisk), "ClusterMemory": shows(writeClusterMemory), "ClusterPartition": shows(writeClusterPartition),
	"ClusterRates": shows(writeClusterRates), "ClusterLink": shows(writeClusterLink), "ClusterLoss": shows(writeClusterLoss),
	"ClusterNode": shows(writeClusterNode), "ClusterReplica": shows(writeClusterReplica), "ClusterShard": shows(writeClusterShard),
	"MemberJob": shows(writeMemberJob), "ChangeMembersResponse": shows(writeChangeMembersResponse),
	"ClusterMember": shows(writeClusterMember), "TransferShardResponse": shows(writeTransferShardResponse),
	"BalanceShardsResponse": shows(writeBalanceShardsResponse), "FinalizeFormatResponse": shows(writeFinalizeFormatResponse),
	"StatusResponse": shows(writeStatusResponse), "CancelAsked": shows(writeCancelAsked), "UpdateResponse": shows(writeUpdateResponse),
	"BatchGetResponse": shows(writeBatchGetResponse), "CancelResponse": shows(writeCancelResponse), "RetryResponse": shows(writeRetryResponse),
	"ForceReleaseResponse": shows(writeForceReleaseResponse), "QueuePaused": shows(writeQueuePaused),
	"Rate": shows(writeRate), "KeyLimits": shows(writeKeyLimits), "KeySettings": shows(writeKeySettings), "QueueKey": shows(writeQueueKey), "QueueUse": shows(writeQueueUse),
	"ListKeysResponse": shows(writeListKeysResponse), "SetKeyResponse": shows(writeSetKeyResponse),
	"PauseKeyResponse": shows(writePauseKeyResponse), "ResumeKeyResponse": shows(writeResumeKeyResponse),
	"QueueCeilings": shows(writeQueueCeilings), "PauseQueueResponse": shows(writePauseQueueResponse),
	"StartBulkResponse": shows(writeStartBulkResponse), "BulkJob": shows(writeBulkJob), "TaskFilter": shows(writeTaskFilter),
	"BulkRefused": shows(writeBulkRefused), "BulkCount": shows(writeBulkCount), "ListBulkResponse": shows(writeListBulkResponse),
	"ListLimitersResponse": shows(writeListLimitersResponse), "Limiter": shows(writeLimiter), "LimiterConfig": shows(writeLimiterConfig), "LimiterHolder": shows(writeLimiterHolder),
	"ListCronsResponse": shows(writeListCronsResponse), "Cron": shows(writeCron), "CronConfig": shows(writeCronConfig), "TaskTemplate": shows(writeTaskTemplate), "CronRun": shows(writeCronRun), "CronChange": shows(writeCronChange),
	"OpenBatchResponse": shows(writeOpenBatchResponse), "ListBatchesResponse": shows(writeListBatchesResponse), "Batch": shows(writeBatch), "BatchCounts": shows(writeBatchCounts),
	"SealBatchResponse": shows(writeSealBatchResponse), "CancelBatchResponse": shows(writeCancelBatchResponse),
	"PauseCronResponse": shows(writePauseCronResponse), "ResumeCronResponse": shows(writeResumeCronResponse),
	"PreviewCronResponse": shows(writePreviewCronResponse), "ListCronRunsResponse": shows(writeListCronRunsResponse),
	"ReportResponse": shows(writeReportResponse), "Progress": shows(writeProgress), "AfterState": shows(writeAfterState), "LogLine": shows(writeLogLine), "LogsResponse": shows(writeLogsResponse),
	"EffectsResponse": shows(writeEffectsResponse), "Effect": shows(writeEffect), "WhyResponse": shows(writeWhyResponse), "WhyReason": shows(writeWhyReason),
	"CancelBulkResponse":  shows(writeCancelBulkResponse),
	"ResumeQueueResponse": shows(writeResumeQueueResponse), "ListWorkersResponse": shows(writeListWorkersResponse),
	"Worker": shows(writeWorker), "ListErrorsResponse": shows(writeListErrorsResponse), "ErrorGroup": shows(writeErrorGroup), "QuietWorkerResponse": shows(writeQuietWorkerResponse),
	"EndClaimResponse": shows(writeEndClaimResponse),
	// Those that are not generated.
	"Result": shows(writeResult),
	"SearchResponse": shows(func(w *jsonWriter, m *pb.SearchResponse) {
		writeSearch(w, &api.Found{Response: m, Query: &core.SearchQuery{}, Answer: &core.SearchAnswer{}})
	}),
}

// shownUnder are the schemas of messages that have none of their own.
var shownUnder = map[string]string{
	"CreateResponse":       "Created",
	"RunNowResponse":       "Done",
	"DeleteResponse":       "Done",
	"SetQueueResponse":     "Configured",
	"GetNamespaceResponse": "Namespace",
	"SetNamespaceResponse": "Configured",
	"KVPutResponse":        "KeyWritten",
	"SetKeyspaceResponse":  "Configured",
	"GetKeyspaceResponse":  "KeyspaceFound",
	"GetTenantResponse":    "Tenant",
	"UpdateRepoResponse":   "Configured",
	"DeleteRepoResponse":   "RepoID",
	"UndeleteRepoResponse": "RepoID",
}

// widen sets the fields of 64 bits that are set to a number that a float64 does not hold: the largest or, where it has a sign and
// is asked for, the smallest.
func widen(m protoreflect.Message, smallest bool) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				widen(v.List().Get(i).Message(), smallest)
			}
		case f.Message() != nil && f.Message().ParentFile().Package() != "google.protobuf":
			widen(v.Message(), smallest)
		case f.Kind() == protoreflect.Uint64Kind:
			m.Set(f, protoreflect.ValueOf(uint64(math.MaxUint64)))
		case f.Kind() == protoreflect.Int64Kind && strings.HasSuffix(string(f.Name()), "_ms"): // a time
		case f.Kind() == protoreflect.Int64Kind && smallest:
			m.Set(f, protoreflect.ValueOf(int64(math.MinInt64)))
		case f.Kind() == protoreflect.Int64Kind:
			m.Set(f, protoreflect.ValueOf(int64(math.MaxInt64)))
		}
		return true
	})
}

// Every message of an answer, with all of its fields set, is what its schema says: numbers that are exact stand as texts in both.
func TestEveryMessageIsWhatItsSchemaSays(t *testing.T) {
	source, err := os.ReadFile("contract_gen.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`(?m)^func write(\w+)\(w \*jsonWriter, `).FindAllSubmatch(source, -1) {
		if allShown[string(name[1])] == nil {
			t.Errorf("write%s is not in the list of what writes messages", name[1])
		}
	}
	c := readContract(t)
	for _, s := range c.Components.Schemas {
		for name, property := range s.Properties {
			property.Enum = nil // texts are filled with any word
			s.Properties[name] = property
		}
	}
	for name, what := range allShown {
		under, ok := shownUnder[name]
		if !ok {
			under = name
		}
		s, ok := c.Components.Schemas[under]
		if !ok {
			t.Errorf("%s has no schema", under)
			continue
		}
		for _, smallest := range []bool{false, true} {
			m, write := what()
			fill(m.ProtoReflect())
			widen(m.ProtoReflect(), smallest)
			w := &jsonWriter{l: defaults}
			w.Open('{')
			write(w)
			w.Close('}')
			d := json.NewDecoder(bytes.NewReader(w.B))
			d.UseNumber()
			var v any
			if err := d.Decode(&v); err != nil {
				t.Errorf("%s: %v: %s", name, err, w.B)
				continue
			}
			for _, wrong := range c.check(name, s, v) {
				t.Errorf("%s: %s", wrong, w.B)
			}
		}
	}
}
