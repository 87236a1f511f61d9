"""Git clients of Python, driven by a test: one step a line of JSON on standard input, its outcome a line on standard output.

A step has an op (list, clone, fetch, push) and its fields; the outcome has err, empty if all went well, and refs.
"""
import json
import os
import sys
import traceback


class Dulwich:
    def open(self, url):
        from dulwich.client import get_transport_and_path

        return get_transport_and_path(url)

    def list(self, url):
        client, path = self.open(url)
        refs = client.get_refs(path.encode())
        refs = getattr(refs, "refs", refs)
        return {k.decode(): v.decode() for k, v in refs.items() if v}

    def clone(self, url, dir, depth):
        from dulwich import porcelain

        porcelain.clone(url, dir, bare=True, depth=depth or None, errstream=open(os.devnull, "wb")).close()

    def fetch(self, url, dir, refspecs, depth):
        from dulwich.repo import Repo

        client, path = self.open(url)
        with Repo(dir) as repo:
            got = client.fetch(path.encode(), repo, depth=depth or None)
            for spec in refspecs:
                src, dst = spec.lstrip("+").split(":")
                for name, id in got.refs.items():
                    name = name.decode()
                    if src == name:
                        repo.refs[dst.encode()] = id
                    elif src.endswith("*") and name.startswith(src[:-1]) and not name.endswith("^{}"):
                        repo.refs[(dst[:-1] + name[len(src) - 1 :]).encode()] = id

    def push(self, url, dir, refspecs):
        from dulwich.repo import Repo

        client, path = self.open(url)
        with Repo(dir) as repo:

            def update(refs):
                out = {}
                for spec in refspecs:
                    src, dst = spec.lstrip("+").split(":")
                    out[dst.encode()] = repo.refs[src.encode()] if src else b"0" * 40
                return out

            said = []
            result = client.send_pack(
                path.encode(), update, generate_pack_data=repo.generate_pack_data, progress=lambda b: said.append(b.decode())
            )
            bad = {k.decode(): v for k, v in (result.ref_status or {}).items() if v}
            if bad:
                raise Exception(f"{bad} {''.join(said)}")


class Libgit2:
    def callbacks(self):
        import pygit2

        class Callbacks(pygit2.RemoteCallbacks):
            bad = []
            said = []

            def sideband_progress(self, text):
                self.said.append(text)

            def push_update_reference(self, refname, message):
                if message is not None:
                    self.bad.append(f"{refname}: {message}")

        c = Callbacks()
        c.bad, c.said = [], []
        return c

    def list(self, url):
        import pygit2, tempfile

        with tempfile.TemporaryDirectory() as dir:
            repo = pygit2.init_repository(dir, bare=True)
            remote = repo.remotes.create_anonymous(url)
            heads = remote.list_heads() if hasattr(remote, "list_heads") else remote.ls_remotes()
            out = {}
            for h in heads:
                name, id = (h["name"], h["oid"]) if isinstance(h, dict) else (h.name, h.oid)
                out[name] = str(id)
            return out

    def clone(self, url, dir, depth):
        import pygit2

        pygit2.clone_repository(url, dir, bare=True, depth=depth or 0).free()

    def fetch(self, url, dir, refspecs, depth):
        import pygit2

        repo = pygit2.Repository(dir)
        repo.remotes.create_anonymous(url).fetch(refspecs, depth=depth or 0)
        repo.free()

    def push(self, url, dir, refspecs):
        import pygit2

        repo = pygit2.Repository(dir)
        c = self.callbacks()
        try:
            repo.remotes.create_anonymous(url).push(refspecs, callbacks=c)
        except Exception as e:
            raise Exception(f"{e} {c.bad} {''.join(c.said)}")
        finally:
            repo.free()
        if c.bad:
            raise Exception(f"{c.bad} {''.join(c.said)}")


client = {"dulwich": Dulwich, "libgit2": Libgit2}[sys.argv[1]]()
for line in sys.stdin:
    step = json.loads(line)
    op = step.pop("op")
    out = {"err": ""}
    try:
        refs = getattr(client, op)(**step)
        if op == "list":
            out["refs"] = {k: v for k, v in refs.items() if not k.endswith("^{}")}
    except BaseException as e:
        out["err"] = f"{type(e).__name__}: {e}" or "failed"
        if os.environ.get("TRACE"):
            traceback.print_exc()
    print(json.dumps(out), flush=True)
