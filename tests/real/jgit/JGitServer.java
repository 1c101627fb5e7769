import java.io.File;
import java.net.InetSocketAddress;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jgit.http.server.GitServlet;

/** Serves the repositories of a folder over HTTP, without logins: JGitServer PORT FOLDER. */
public class JGitServer {
    public static void main(String[] args) throws Exception {
        var servlet = new ServletHolder(new GitServlet());
        servlet.setInitParameter("base-path", new File(args[1]).getAbsolutePath());
        servlet.setInitParameter("export-all", "true");
        var context = new ServletContextHandler();
        context.setContextPath("/");
        context.addServlet(servlet, "/*");
        var server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])));
        server.setHandler(context);
        server.start();
        server.join();
    }
}
