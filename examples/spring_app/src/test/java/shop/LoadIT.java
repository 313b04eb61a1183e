package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import tidegate.servlet.Servers;

/** Two processes of the shop on one Redis Cluster, under load: they admit exactly the limit together. */
class LoadIT {
    private static final int THREADS = 32;
    private static final Duration MOST = Duration.ofSeconds(60);

    @TempDir
    static Path folder;

    private static Servers cluster;
    private static final List<Service> services = new ArrayList<>();
    private static final HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private static final Sessions sessions = new Sessions("only-for-this-example-and-no-other-site");

    @BeforeAll
    static void start() throws Exception {
        cluster = new Servers("cluster");
        // A machine that is busy may answer late; it must not answer by itself for that.
        String document = Files.readString(Path.of("src/main/resources/tidegate.toml"))
                .replace("[store]", "[store]\ndeadline = \"20s\"")
                .replace("upload = { limits = \"5/s\"", "daily = \"5/d\"\nupload = { limits = \"5/s\"")
                .replace("[[routes]]\npath = \"/upload\"", """
                        [[routes]]
                        path = "/upload"
                        methods = ["PUT"]
                        rules = "daily"
                        key = "user"
                        without_identity = "refuse"

                        [[routes]]
                        path = "/upload\"""");
        Path file = Files.writeString(folder.resolve("limits.toml"), document);
        for (int i = 0; i < 2; i++) services.add(new Service(file, cluster.url()));
    }

    @AfterAll
    static void end() throws InterruptedException {
        for (Service service : services) service.close();
        if (cluster != null) cluster.close();
    }

    /** When it was asked and answered, by this process's clock, in nanoseconds. */
    private record Answered(int status, String user, long asked, long answered) {}

    private static Answered ask(int number, String method, String path, String user) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(services.get(number % services.size()).url(path))).timeout(MOST);
        if (user != null) request.header("Cookie", sessions.cookie(user).toString().split(";")[0]);
        request.method(method, BodyPublishers.ofString("name=alice&password=guess"));
        request.header("Content-Type", "application/x-www-form-urlencoded");
        long asked = System.nanoTime();
        int status = client.send(request.build(), BodyHandlers.ofString()).statusCode();
        return new Answered(status, user, asked, System.nanoTime());
    }

    private static List<Answered> together(List<Callable<Answered>> calls) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        try {
            List<Answered> answers = new ArrayList<>();
            for (var call : threads.invokeAll(calls, 5, TimeUnit.MINUTES)) answers.add(call.get());
            return answers;
        } finally {
            threads.shutdownNow();
        }
    }

    @Test
    void tenThousandRequestsOfAHundredUsersPassFiveHundredTimes() throws Exception {
        List<Callable<Answered>> calls = new ArrayList<>();
        for (int i = 0; i < 10_000; i++) {
            int number = i;
            calls.add(() -> ask(number, "PUT", "/upload", "user" + number / 2 % 100));
        }
        Map<String, Integer> passed = new TreeMap<>();
        for (Answered answer : together(calls)) {
            // The handler is for POST alone; what it says shows that the request came to it.
            assertTrue(answer.status == 405 || answer.status == 429, "answered with " + answer.status);
            if (answer.status == 405) passed.merge(answer.user, 1, Integer::sum);
        }
        assertEquals(100, passed.size());
        passed.forEach((user, times) -> assertEquals(5, times, user));
    }

    @Test
    void noSecondHasMoreThanFiveUploadsOfAUser() throws Exception {
        long seconds = 4;
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        List<Callable<Answered>> calls = new ArrayList<>();
        for (int i = 0; i < 8_000; i++) {
            int number = i;
            String user = number / 2 % 2 == 0 ? "alice" : "bob";
            calls.add(() -> System.nanoTime() > until ? null : ask(number, "POST", "/upload", user));
        }
        List<Answered> answers = together(calls).stream().filter(answer -> answer != null).toList();
        for (String user : List.of("alice", "bob")) {
            List<Answered> passed = answers.stream()
                    .filter(answer -> answer.user.equals(user) && answer.status == 200)
                    .sorted(Comparator.comparingLong(Answered::asked))
                    .toList();
            for (Answered first : passed) {
                long end = first.asked + TimeUnit.SECONDS.toNanos(1);
                long within = passed.stream().filter(one -> one.asked >= first.asked && one.answered < end).count();
                assertTrue(within <= 5, user + " passed " + within + " times in a second");
            }
            assertTrue(passed.size() >= 5 * (seconds - 1), user + " passed " + passed.size() + " times of " + answers.size());
        }
    }

    @Test
    void fiveLoginsOfAnAddressAreTried() throws Exception {
        List<Callable<Answered>> calls = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            int number = i;
            calls.add(() -> ask(number, "POST", "/login", null));
        }
        Map<Integer, Integer> statuses = new TreeMap<>();
        for (Answered answer : together(calls)) statuses.merge(answer.status, 1, Integer::sum);
        assertEquals(Map.of(401, 5, 429, 195), statuses);
    }
}
