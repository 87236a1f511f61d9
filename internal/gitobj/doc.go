// Package gitobj keeps the objects of git repositories: pack files on this node's disk, outside of the log and the store.
//
// A push's pack is checked by git in a directory of its own (incoming), made durable (staged) and, once the entry that
// names it is applied, linked to where fetches look (objects/pack). Which packs a repository has is said by its manifest,
// which is state behind the log and comes from the Manifests that the caller gives; nothing on disk is read back as state.
// Objects are looked up in process; git itself runs only to take a pack in, to check that nothing is missing, to send
// objects, and always through env.Exec: with fixed arguments, an environment made here, and limits. DESIGN.md has the
// layout and its rules.
//
// Promised: a pack that Keep returned is durable; no file that a manifest names is ever removed while its repository
// exists; damaged packs are refused, never read past. Elsewhere: refs (machine/refs), the protocol (githttp).
//
// Main types: an Area is the directory with all repositories, a Push one pack on its way into it, a
// Gitdir the refs of one revision as git wants to find them, a view the packs that git is shown, a
// Holding the files that a backup keeps. Packs that this node lacks, and copies of other nodes'
// pushes, come as transfers over the lines between areas (wire.go).
//
// What a crash leaves: half received packs, gitdirs and views are removed at the next start. A
// staged pack stays until a manifest names it, and it is published, or until no entry can name it
// any more. So each name on the disk is either the whole pack or is never taken for one: what is
// linked from staged is compared with its digest.
package gitobj
