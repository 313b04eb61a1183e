package tidegate.servlet;

import jakarta.servlet.Filter;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.EnumSet;
import org.eclipse.jetty.ee10.servlet.FilterHolder;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.http.UriCompliance;
import org.eclipse.jetty.server.HttpConnectionFactory;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/** A Jetty on a port of its own. */
final class Jetty implements AutoCloseable {
    final ServletContextHandler context;
    private final Server server = new Server(new InetSocketAddress("127.0.0.1", 0));

    @FunctionalInterface
    interface Handler {
        void handle(HttpServletRequest request, HttpServletResponse response) throws IOException, ServletException;
    }

    Jetty(String contextPath) {
        context = new ServletContextHandler(contextPath);
        server.setHandler(context);
    }

    Jetty filter(Filter filter) {
        return filter(new FilterHolder(filter));
    }

    Jetty filter(FilterHolder holder) {
        holder.setAsyncSupported(true);
        context.addFilter(holder, "/*", EnumSet.copyOf(RateLimitFilter.DISPATCHER_TYPES));
        return this;
    }

    Jetty servlet(String pattern, Handler handler) {
        ServletHolder holder = new ServletHolder(new HttpServlet() {
            @Override
            protected void service(HttpServletRequest request, HttpServletResponse response)
                    throws IOException, ServletException {
                handler.handle(request, response);
            }
        });
        holder.setAsyncSupported(true);
        context.addServlet(holder, pattern);
        return this;
    }

    /** Takes whatever a client writes for a path. */
    Jetty lenient(boolean tells) {
        ServerConnector connector = (ServerConnector) server.getConnectors()[0];
        var configuration = connector.getConnectionFactory(HttpConnectionFactory.class).getHttpConfiguration();
        configuration.setUriCompliance(UriCompliance.UNSAFE);
        context.getServletHandler().setDecodeAmbiguousURIs(tells);
        return this;
    }

    Http start() throws Exception {
        server.start();
        return new Http(((ServerConnector) server.getConnectors()[0]).getLocalPort());
    }

    @Override
    public void close() throws Exception {
        server.stop();
    }
}
