package core

// OpKind numbers an op in entries and on the wire. Numbers are never reused; reserved ones are refused at the edge as
// not_supported and stop a shard that meets one in a committed entry.
type OpKind uint8

// The kinds of op. Each that is not reserved has a row in opRows.
const (
	OpTaskCreate       OpKind = 1
	OpTaskComplete     OpKind = 2
	OpTaskFail         OpKind = 3
	OpTaskSnooze       OpKind = 4
	OpTaskRelease      OpKind = 5
	OpTaskRenew        OpKind = 6
	OpTaskCancel       OpKind = 7
	OpTaskRedrive      OpKind = 8
	OpTaskUpdate       OpKind = 9
	OpTaskDelete       OpKind = 10
	OpQueueSet         OpKind = 11
	OpQueuePause       OpKind = 12
	OpGrant            OpKind = 13
	OpTick             OpKind = 14
	OpTermStart        OpKind = 15
	OpNamespaceCreate  OpKind = 16
	OpNamespaceSet     OpKind = 17
	OpTaskRunNow       OpKind = 18
	OpMembersInit      OpKind = 19
	OpMemberChange     OpKind = 20
	OpMemberStep       OpKind = 21
	OpFormatRaise      OpKind = 22
	OpTenantSet        OpKind = 23
	OpQueueDelete      OpKind = 24
	OpClockShift       OpKind = 25
	OpNamespaceRemove  OpKind = 26
	OpKeySet           OpKind = 27
	OpPartitionRemove  OpKind = 28
	OpTaskStop         OpKind = 29
	OpTaskForceRelease OpKind = 30 // 31 stands for a TaskCreate with fields of FormatOperate

	OpKVPut          OpKind = 32
	OpKVDelete       OpKind = 33
	OpKVCheck        OpKind = 34
	OpKVAdd          OpKind = 35
	OpKVDeleteRange  OpKind = 36
	OpKVMin          OpKind = 37 // reserved
	OpKVMax          OpKind = 38 // reserved
	OpKVAppend       OpKind = 39 // reserved
	OpKVGet          OpKind = 40 // reserved
	OpKVBranch       OpKind = 41 // reserved
	OpKeyspaceSet    OpKind = 42
	OpKVPuts         OpKind = 43
	OpKeyspaceDelete OpKind = 44
	OpKeyspaceUse    OpKind = 45
	OpTenantUse      OpKind = 46

	OpTaskReport  OpKind = 47
	OpBulkStart   OpKind = 49
	OpBulkStop    OpKind = 50
	OpSessionLost OpKind = 52

	OpSessionKeyAdd OpKind = 53

	OpCronSet    OpKind = 54
	OpCronDelete OpKind = 55
	OpCronFire   OpKind = 56

	OpBatchOpen     OpKind = 57
	OpBatchSeal     OpKind = 58
	OpBatchCancel   OpKind = 59 // 60 and 62 stand for a TaskCreate and a BulkStart with a batch
	OpLimiterSet    OpKind = 63
	OpLimiterDelete OpKind = 95

	OpTenantQuota OpKind = 61

	// 64 to 71 are changes within a RefTxn, which are judged together. They do not stand in a commit by themselves.
	OpRefCreate    OpKind = 64
	OpRefUpdate    OpKind = 65
	OpRefDelete    OpKind = 66
	OpRefVerify    OpKind = 67
	OpSymrefUpdate OpKind = 68
	OpSymrefCreate OpKind = 69
	OpSymrefDelete OpKind = 70
	OpSymrefVerify OpKind = 71
	OpRefTxn       OpKind = 72
	OpRepoCreate   OpKind = 73
	OpRepoSet      OpKind = 74
	OpRepoDelete   OpKind = 75
	OpRepoUndelete OpKind = 76
	OpPackSwap     OpKind = 77
	OpRefPrepare   OpKind = 78 // reserved: the first phase of two
	OpRefEnd       OpKind = 79 // reserved: the second

	OpVectorUpsert     OpKind = 96
	OpVectorDelete     OpKind = 97
	OpCollectionSet    OpKind = 98
	OpCollectionDelete OpKind = 99
	OpRulesetPut       OpKind = 100
	OpRecordingPut     OpKind = 101 // 102 and 104 to 126 are free
	OpRulesetDelete    OpKind = 103
)

// Service says which state machine applies an op.
type Service uint8

// The services.
const (
	ServiceNone   Service = iota // the kind is not known to this build
	ServiceShard                 // the shard itself: time, directory, members, formats, namespaces
	ServiceQueue                 // tasks
	ServiceKV                    // keys
	ServiceRefs                  // git repositories
	ServiceSearch                // collections, rulesets, recordings
	ServiceInTxn                 // a change within a RefTxn: it is not applied by itself
)

// Home says in which partition an op may stand. Apply refuses it elsewhere.
type Home uint8

// The homes.
const (
	HomePartition Home = iota // a partition of a namespace
	HomeShard                 // the system partition of any shard, alone in its commit
	HomeDirectory             // the system partition of shard 0
	HomeMembers               // the same, alone in its commit
)

// OpTrait is something that holds for all ops of a kind. A kind has a set of them.
type OpTrait uint16

// The traits. Where the value of an op is needed too, a function of the same sense returns it.
const (
	OpGrows      OpTrait = 1 << iota // it asks for room on the disk beyond the records of what exists: see Grows
	OpSettles                        // it ends the attempt that holds a lease: see Settled
	OpNamesTask                      // it creates or changes one task: see TaskOf
	OpTakesRev                       // what it writes has the revision of the commit
	OpWritesOne                      // it writes one key, or one point: see WrittenBy
	OpWritesKeys                     // it changes keys of one keyspace: see KeysOf
	OpPutsKeys                       // of these: it puts values, which the rates of the keyspace bound
	OpPlaced                         // it says itself which partition it belongs to: see PlaceOf
)

// opRow is what is known of all ops of a kind.
type opRow struct {
	name string // as documents and the contract call it
	// The machine that applies it.
	service Service
	// The only partition that it may stand in.
	home Home
	// Everything that holds for all ops of the kind.
	traits OpTrait
}

// Traits that ops have together.
const (
	// What ends an attempt.
	settles = OpSettles | OpNamesTask
	// What changes one key and takes the commit's revision.
	writesKey = OpTakesRev | OpWritesOne | OpWritesKeys | OpPlaced
	// What puts a value under one key.
	putsKey = writesKey | OpPutsKeys | OpGrows
)

// opRows has one row for each kind that is not reserved. It is indexed by all values of an OpKind, so that a look needs no
// check of bounds.
var opRows = [256]opRow{
	OpTaskCreate:       {name: "task_create", service: ServiceQueue, traits: OpGrows | OpNamesTask},
	OpTaskComplete:     {name: "task_complete", service: ServiceQueue, traits: settles},
	OpTaskFail:         {name: "task_fail", service: ServiceQueue, traits: settles},
	OpTaskSnooze:       {name: "task_snooze", service: ServiceQueue, traits: settles},
	OpTaskRelease:      {name: "task_release", service: ServiceQueue, traits: settles},
	OpTaskRenew:        {name: "task_renew", service: ServiceQueue},
	OpTaskCancel:       {name: "task_cancel", service: ServiceQueue, traits: OpNamesTask},
	OpTaskStop:         {name: "task_stop", service: ServiceQueue, traits: settles},
	OpTaskRedrive:      {name: "task_redrive", service: ServiceQueue, traits: OpNamesTask},
	OpTaskUpdate:       {name: "task_update", service: ServiceQueue, traits: OpGrows | OpNamesTask},
	OpTaskForceRelease: {name: "task_force_release", service: ServiceQueue, traits: OpNamesTask},
	OpTaskDelete:       {name: "task_delete", service: ServiceQueue, traits: OpNamesTask},
	OpTaskRunNow:       {name: "task_run_now", service: ServiceQueue, traits: OpNamesTask},
	OpQueueSet:         {name: "queue_set", service: ServiceQueue, traits: OpGrows},
	OpQueuePause:       {name: "queue_pause", service: ServiceQueue},
	OpQueueDelete:      {name: "queue_delete", service: ServiceQueue},
	OpKeySet:           {name: "key_set", service: ServiceQueue, traits: OpGrows},
	OpBulkStart:        {name: "bulk_start", service: ServiceQueue},
	OpBulkStop:         {name: "bulk_stop", service: ServiceQueue},
	OpCronSet:          {name: "cron_set", service: ServiceQueue, traits: OpGrows | OpPlaced},
	OpCronDelete:       {name: "cron_delete", service: ServiceQueue, traits: OpPlaced},
	OpCronFire:         {name: "cron_fire", service: ServiceQueue, traits: OpPlaced},
	OpBatchOpen:        {name: "batch_open", service: ServiceQueue, traits: OpGrows},
	OpBatchSeal:        {name: "batch_seal", service: ServiceQueue},
	OpBatchCancel:      {name: "batch_cancel", service: ServiceQueue},
	OpLimiterSet:       {name: "limiter_set", service: ServiceQueue, traits: OpGrows},
	OpLimiterDelete:    {name: "limiter_delete", service: ServiceQueue},
	OpGrant:            {name: "grant", service: ServiceQueue},
	OpTenantQuota:      {name: "tenant_quota", service: ServiceQueue},
	OpSessionLost:      {name: "session_lost", service: ServiceQueue},
	OpTaskReport:       {name: "task_report", service: ServiceQueue, traits: OpGrows | OpNamesTask},
	OpTick:             {name: "tick", service: ServiceShard, home: HomeShard},
	OpTermStart:        {name: "term_start", service: ServiceShard, home: HomeShard},
	OpClockShift:       {name: "clock_shift", service: ServiceShard, home: HomeShard},
	OpNamespaceCreate:  {name: "namespace_create", service: ServiceShard, home: HomeDirectory, traits: OpGrows},
	OpNamespaceRemove:  {name: "namespace_remove", service: ServiceShard, home: HomeDirectory},
	OpTenantSet:        {name: "tenant_set", service: ServiceShard, home: HomeDirectory},
	OpSessionKeyAdd:    {name: "session_key_add", service: ServiceShard, home: HomeDirectory},
	OpMembersInit:      {name: "members_init", service: ServiceShard, home: HomeMembers},
	OpMemberChange:     {name: "member_change", service: ServiceShard, home: HomeMembers},
	OpMemberStep:       {name: "member_step", service: ServiceShard, home: HomeMembers},
	OpFormatRaise:      {name: "format_raise", service: ServiceShard, home: HomeMembers},
	OpNamespaceSet:     {name: "namespace_set", service: ServiceShard, traits: OpGrows},
	OpPartitionRemove:  {name: "partition_remove", service: ServiceShard},

	OpKVPut:          {name: "kv_put", service: ServiceKV, traits: putsKey},
	OpKVAdd:          {name: "kv_add", service: ServiceKV, traits: putsKey},
	OpKVDelete:       {name: "kv_delete", service: ServiceKV, traits: writesKey},
	OpKVDeleteRange:  {name: "kv_delete_range", service: ServiceKV, traits: OpTakesRev | OpWritesKeys | OpPlaced},
	OpKVCheck:        {name: "kv_check", service: ServiceKV, traits: OpPlaced},
	OpKVPuts:         {name: "kv_puts", service: ServiceKV, traits: OpWritesKeys | OpPutsKeys | OpGrows}, // its items have revisions of their own
	OpKeyspaceSet:    {name: "keyspace_set", service: ServiceKV, traits: OpGrows},
	OpKeyspaceDelete: {name: "keyspace_delete", service: ServiceKV},
	OpKeyspaceUse:    {name: "keyspace_use", service: ServiceKV},
	OpTenantUse:      {name: "tenant_use", service: ServiceKV},

	OpRefCreate:    {name: "ref_create", service: ServiceInTxn},
	OpRefUpdate:    {name: "ref_update", service: ServiceInTxn},
	OpRefDelete:    {name: "ref_delete", service: ServiceInTxn},
	OpRefVerify:    {name: "ref_verify", service: ServiceInTxn},
	OpSymrefUpdate: {name: "symref_update", service: ServiceInTxn},
	OpSymrefCreate: {name: "symref_create", service: ServiceInTxn},
	OpSymrefDelete: {name: "symref_delete", service: ServiceInTxn},
	OpSymrefVerify: {name: "symref_verify", service: ServiceInTxn},
	OpRefTxn:       {name: "ref_transaction", service: ServiceRefs, traits: OpGrows | OpPlaced},
	OpRepoCreate:   {name: "repo_create", service: ServiceRefs, traits: OpGrows},
	OpRepoSet:      {name: "repo_set", service: ServiceRefs, traits: OpGrows},
	OpRepoDelete:   {name: "repo_delete", service: ServiceRefs},
	OpRepoUndelete: {name: "repo_undelete", service: ServiceRefs},
	OpPackSwap:     {name: "pack_swap", service: ServiceRefs},

	OpVectorUpsert:     {name: "vector_upsert", service: ServiceSearch, traits: OpGrows | OpTakesRev | OpWritesOne | OpPlaced},
	OpVectorDelete:     {name: "vector_delete", service: ServiceSearch, traits: OpWritesOne | OpPlaced},
	OpCollectionSet:    {name: "collection_set", service: ServiceSearch, traits: OpGrows},
	OpCollectionDelete: {name: "collection_delete", service: ServiceSearch},
	OpRulesetPut:       {name: "ruleset_put", service: ServiceSearch, traits: OpGrows},
	OpRulesetDelete:    {name: "ruleset_delete", service: ServiceSearch},
	OpRecordingPut:     {name: "recording_put", service: ServiceSearch, traits: OpGrows},
}

// Name returns what documents and the contract call ops of the kind; empty for one that is reserved or not known.
func (k OpKind) Name() string { return opRows[k].name }

// Service returns which state machine applies ops of the kind.
func (k OpKind) Service() Service { return opRows[k].service }

// Home returns in which partition ops of the kind may stand.
func (k OpKind) Home() Home { return opRows[k].home }

// Has reports whether all ops of the kind have a trait.
func (k OpKind) Has(trait OpTrait) bool { return opRows[k].traits&trait != 0 }
