import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.eclipse.jgit.api.CloneCommand;
import org.eclipse.jgit.api.FetchCommand;
import org.eclipse.jgit.api.Git;
import org.eclipse.jgit.lib.NullProgressMonitor;
import org.eclipse.jgit.lib.Ref;
import org.eclipse.jgit.transport.PushResult;
import org.eclipse.jgit.transport.RefSpec;
import org.eclipse.jgit.transport.RemoteRefUpdate;
import org.eclipse.jgit.transport.TagOpt;

/**
 * JGit, driven by a test: a step is a line of fields that tabs separate, its outcome is lines, the last of which begins with "end".
 * Steps: list URL; clone URL DIR DEPTH; fetch URL DIR DEPTH REFSPEC...; push URL DIR REFSPEC...
 */
public class Client {
  public static void main(String[] args) throws Exception {
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String err = "";
      try {
        step(out, line.split("\t"));
      } catch (Throwable e) {
        err = oneLine(e);
      }
      out.println("end\t" + err);
    }
  }

  static String oneLine(Throwable e) {
    StringBuilder b = new StringBuilder();
    for (Throwable t = e; t != null; t = t.getCause()) {
      b.append(t.getClass().getSimpleName()).append(": ").append(t.getMessage()).append(" ");
    }
    return b.toString().replaceAll("[\r\n\t]", " ");
  }

  static void step(PrintStream out, String[] f) throws Exception {
    switch (f[0]) {
      case "list":
        for (Ref r : Git.lsRemoteRepository().setRemote(f[1]).callAsMap().values()) {
          out.println("ref\t" + r.getName() + "\t" + r.getObjectId().name());
        }
        return;
      case "clone":
        CloneCommand c = Git.cloneRepository().setURI(f[1]).setDirectory(new File(f[2])).setBare(true);
        if (!f[3].equals("0")) {
          c.setDepth(Integer.parseInt(f[3]));
        }
        c.call().close();
        return;
      case "fetch":
        try (Git git = Git.open(new File(f[2]))) {
          FetchCommand fetch = git.fetch().setRemote(f[1]).setTagOpt(TagOpt.NO_TAGS).setRefSpecs(specs(f, 4));
          if (!f[3].equals("0")) {
            fetch.setDepth(Integer.parseInt(f[3]));
          }
          fetch.call();
        }
        return;
      case "push":
        try (Git git = Git.open(new File(f[2]))) {
          List<String> bad = new ArrayList<>();
          for (PushResult r : git.push().setRemote(f[1]).setRefSpecs(specs(f, 3)).setProgressMonitor(NullProgressMonitor.INSTANCE).call()) {
            for (RemoteRefUpdate u : r.getRemoteUpdates()) {
              if (u.getStatus() != RemoteRefUpdate.Status.OK && u.getStatus() != RemoteRefUpdate.Status.UP_TO_DATE) {
                bad.add(u.getRemoteName() + ": " + u.getStatus() + " " + u.getMessage() + " " + r.getMessages());
              }
            }
          }
          if (!bad.isEmpty()) {
            throw new Exception(bad.toString());
          }
        }
        return;
      default:
        throw new Exception("no step " + f[0]);
    }
  }

  static List<RefSpec> specs(String[] f, int from) {
    List<RefSpec> out = new ArrayList<>();
    for (int i = from; i < f.length; i++) {
      out.add(new RefSpec(f[i]));
    }
    return out;
  }
}
