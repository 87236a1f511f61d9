// Package githttp speaks git's smart HTTP protocol: clone, fetch and push of git clients, versions 0, 1 and 2.
//
// Names of refs come from the state behind the log and never from a disk: advertisements and ls-refs are written here, and
// receive-pack is done here in whole. What only git can do well (indexing a pack, walking what is connected, choosing and
// sending objects) is behind Objects. A push goes these steps: admit, read commands, receive the pack, check that nothing
// is missing, keep the pack durably, propose one commit, publish the pack, report. Before the proposal nothing has
// happened; after it the entry decides, whatever becomes of the connection.
//
// The node and the objects are reached through interfaces that are declared in backend.go. Source of the formats:
// Documentation/gitprotocol-{common,http,pack,v2}.txt of git.
//
// A Server makes one request of each HTTP request. It finds the caller by the token and the
// repository by the path, and calls the handler of the action: two advertisements, fetch, and push.
// For a push the request becomes a pushing, which holds the commands until all of them have an
// outcome. Bodies and answers pass through a pace, which ends transfers that are too slow; commands
// in memory are counted over all requests.
package githttp
