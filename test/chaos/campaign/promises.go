package campaign

// Promise is one promise of the product, and the ids of the rows that hold it.
type Promise struct {
	Text string
	Rows []string
}

// Promises lists the promises in the order of the documentation.
func Promises() []Promise {
	return []Promise{
		{"An acknowledged write is on disk, on a majority of the nodes.", []string{"R-01", "R-01-3", "R-02", "R-03", "R-04", "R-05", "R-06", "R-07", "R-07-1", "R-08", "R-09", "R-09-1", "R-25", "R-26", "R-30"}},
		{"Tasks are delivered at least once, their effects happen exactly once, and a worker without a live lease changes nothing.", []string{"R-15", "R-16", "R-17", "R-35", "R-36", "R-40"}},
		{"One commit is one entry: all of it, or nothing.", []string{"R-16", "R-27", "R-28"}},
		{"A new leader has everything that the last one had.", []string{"R-11", "R-24-1", "R-34", "R-39"}},
		{"Reads are linearizable, on every node.", []string{"R-10", "R-11", "R-12", "R-13", "R-14", "R-14-1", "R-29"}},
		{"Nothing vanishes: what has not ended is never deleted.", []string{"R-08", "R-34", "R-37", "R-38"}},
		{"Memory, queues, streams and bodies have limits, and a refusal names its limit.", []string{"R-18", "R-19", "R-20", "R-21", "R-22", "R-23", "R-23-search", "R-33", "S-04", "S-08"}},
		{"Tenants do not see each other.", []string{"R-22", "S-01", "S-02"}},
		{"Interfaces take anything from strangers, and nothing without a right.", []string{"R-30", "R-31", "R-32", "S-01", "S-03", "S-05", "S-06", "S-07", "S-09", "S-10", "S-11", "S-12", "S-13", "S-14"}},
		{"Versions can be changed under load.", []string{"R-24", "R-24b"}},
	}
}

// Other is a row that no campaign counts.
type Other struct {
	ID   string
	What string
	// Tests are the tests of the ordinary suite that hold it, as folder.Name, where the name may be
	// a beginning. None: it does not run.
	Tests []string
	// Why says why it does not run, or what the tests leave out.
	Why string
}

// Others lists the rows without a campaign.
func Others() []Other {
	const notBuilt = "not built yet"
	return []Other{
		{"R-02", "power cut of a log at random places, in the process of the test", []string{"internal/replog/wal.TestPowerCutLosesNothingAcknowledged"}, ""},
		{"R-07", "failed and short writes and syncs", []string{"internal/replog/wal.TestAnyFailedOperation"}, "of the log"},
		{"R-13", "wrong clocks", []string{"internal/sim.TestClustersKeepTheirPromises"}, "simulated"},
		{"R-19", "thousands of idle streams", nil, notBuilt},
		{"R-20", "a reader that stands still", []string{"internal/api/stream.TestTasksAreGrantedOnlyWithRoomToSend"}, "one stream, without figures"},
		{"R-21", "overload, and the way back", nil, notBuilt},
		{"R-22", "one tenant far beyond its share", nil, notBuilt},
		{"R-23", "hours under load", nil, notBuilt},
		{"R-24b", "rolling upgrade", []string{"test/e2e.TestAClusterIsUpgraded"}, "without a campaign"},
		{"R-25", "backup and restore", []string{"test/e2e.TestABackupUnderLoad", "internal/backup.TestADamagedFile"}, "without points in time"},
		{"R-27", "all short sequences of operations", []string{"internal/machine/commit.TestAllShortSequences"}, ""},
		{"R-28", "the same operations on other clusters", nil, notBuilt},
		{"R-29", "replicas of one shard agree", []string{"internal/check/checktest.TestReplicasThatDiffer", "internal/sim.TestClustersKeepTheirPromises"}, "within each row on three nodes too"},
		{"R-32", "hostile input of decoders", []string{"internal/core.Fuzz", "internal/replog/wal.Fuzz", "internal/replog/transport.Fuzz", "internal/api.Fuzz", "internal/api/stream.Fuzz", "internal/gitobj.Fuzz", "internal/githttp.Fuzz", "internal/auth.Fuzz", "internal/config.Fuzz", "internal/rules.Fuzz"}, "their seeds; `make fuzz` goes on from there"},
		{"R-33", "races and leaks", nil, "`make check` runs the tests with the race detector, those of the longest packages in turn"},
		{"R-35", "cut connections and blocked loops of each SDK", nil, notBuilt},
		{"R-36", "orderly ends under load", []string{"test/e2e.TestATerminatedServerEndsWithinItsGrace"}, "without a campaign"},
		{"R-37", "webhooks", nil, notBuilt},
		{"R-38", "days of delays, cron and retention", nil, notBuilt},
		{"R-39", "order and fairness while leaders are lost", nil, notBuilt},
		{"R-40", "the same checkers on other systems", nil, notBuilt},
		{"S-01", "every route, and every kind of token", []string{"internal/rest.TestEveryRouteIsClosedToWhoHasNoRight", "internal/rest.TestARouteWithoutARuleKeepsTheServerFromBeingMade"}, ""},
		{"S-02", "foreign ids look like missing ones", []string{"internal/api.TestEveryRouteReachesItsOwnTenantAlone", "internal/api/stream.TestEveryFrameReachesItsOwnTenantAlone", "internal/api.TestAForeignTaskAnswersLikeAMissingOne"}, ""},
		{"S-03", "peers without a valid certificate", []string{"internal/replog/transport.TestPeersWithoutAValidCertificateAreRefused"}, ""},
		{"S-04", "every limit, exceeded by one", []string{"internal/api.TestEveryLimitAnswersItsNameAndTheNextCallWorks"}, ""},
		{"S-05", "targets of webhooks", nil, notBuilt},
		{"S-06", "signatures of webhooks", nil, notBuilt},
		{"S-07", "audit log", nil, notBuilt},
		{"S-08", "quotas and rates of tenants", []string{"internal/node.TestPutsBeyondABound", "internal/node.TestABoundOfAllKeys", "internal/rate.TestARateIsThatOfAllNodes", "internal/api/stream.TestPutsOfEffectsAndOfCommits", "internal/rest.TestATenantIsBounded"}, "of keys"},
		{"S-09", "administration is on loopback", []string{"internal/server.TestTheAdminListenerStarts", "test/e2e.TestTheAdminListenerNeeds"}, "no web interface yet"},
		{"S-10", "scans of code and dependencies", []string{"internal/lint.TestVulnerabilitiesAreFound", "internal/lint.TestTheNoticeAndTheBillOfMaterials"}, "`make check` asks the database of known vulnerabilities, if it is in reach"},
		{"S-11", "secrets at rest", nil, notBuilt},
		{"S-12", "a server without tokens does not start", []string{"test/e2e.TestAServerWithoutTokensDoesNotStart"}, ""},
		{"S-13", "git's children", []string{"internal/env.TestLimitsHoldBeforeThereIsInput", "internal/env.TestWhenTheCallerIsGone", "test/e2e.TestAPackOfAHugeClaim", "test/e2e.TestAPushThatNoClientWouldSend"}, "deep chains of deltas"},
		{"S-14", "hostile peers, and nodes of other clusters", []string{"internal/replog/transport.TestEachRefusalIsNamedOnBothSides", "internal/replog/transport.TestAFrameThatMakesNoSense"}, ""},
	}
}
