package rest

import (
	"net/http"

	"github.com/millrace/millrace/internal/api"
)

// clusterRoutes are for operators.
func clusterRoutes() []*Route {
	return []*Route{
		{
			Method: http.MethodGet, Path: "/v1/cluster", Native: api.ClusterMethods + "Status", Answer: "ClusterStatusResponse", Status: statusOK,
			Doc: "Tell how the cluster looks from the node that is asked, which asks the others.", handle: (*restCall).clusterStatus,
		},
		{
			Method: http.MethodPost, Path: "/v1/cluster/members", Repeat: RepeatCondition, Native: api.ClusterMethods + "ChangeMembers", Body: "ChangeMembersRequest", Answer: "ChangeMembersResponse", Status: statusOK,
			Doc:    "Begin or cancel a change of membership, or drain a node.",
			fields: fieldNames(changeMembersRequestFields), handle: (*restCall).clusterChangeMembers,
		},
		{
			Method: http.MethodPost, Path: "/v1/cluster/transfer", Repeat: RepeatSame, Native: api.ClusterMethods + "TransferShard", Body: "TransferShardRequest", Answer: "TransferShardResponse", Status: statusOK,
			Doc:    "Have a node lead a shard, and keep it.",
			fields: fieldNames(transferShardRequestFields), handle: (*restCall).clusterTransferShard,
		},
		{
			Method: http.MethodPost, Path: "/v1/cluster/balance", Repeat: RepeatSame, Native: api.ClusterMethods + "BalanceShards", Answer: "BalanceShardsResponse", Status: statusOK,
			Doc: "Have every shard led by the node that it is at home with.", handle: (*restCall).clusterBalanceShards,
		},
		{
			Method: http.MethodPost, Path: "/v1/cluster/finalize", Repeat: RepeatSame, Native: api.ClusterMethods + "FinalizeFormat", Answer: "FinalizeFormatResponse", Status: statusOK,
			Doc: "End an upgrade: write what the newest programs write, which the programs of all members must know.", handle: (*restCall).clusterFinalizeFormat,
		},
	}
}
