import com.espertech.esper.common.client.EPCompiled;
import com.espertech.esper.common.client.EventBean;
import com.espertech.esper.common.client.EventSender;
import com.espertech.esper.common.client.configuration.Configuration;
import com.espertech.esper.compiler.client.CompilerArguments;
import com.espertech.esper.compiler.client.EPCompilerProvider;
import com.espertech.esper.runtime.client.EPRuntime;
import com.espertech.esper.runtime.client.EPRuntimeProvider;
import com.espertech.esper.runtime.client.EPStatement;
import com.espertech.esper.runtime.client.UpdateListener;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.file.Files;
import java.nio.file.Paths;

/**
 * How many events one EPL statement takes per second of processor time: `Throughput EPL EVENTS [PEOPLE]`.
 *
 * The files hold rows of three little-endian doubles, from which the events are made before anything is measured: id, user (or
 * who) and idl of an Event; id, name and score of a Person, which are sent once. Then each line on standard input says how often
 * this thread sends all events, and a line of JSON tells how many these were, how many rows the listener was given, and the
 * seconds of processor time of all threads.
 *
 * Plain enough for Janino, which Esper brings along, to compile it: no Java compiler is needed.
 */
public final class Throughput {
    /** Milliseconds between two events, and of all passes that are over. */
    private static final double EVENT_GAP_MS = 3.6;
    private static long passed = 0;

    public static final class Event {
        private final long id;
        private final double user;
        private final double idl;

        public Event(long id, double user, double idl) {
            this.id = id;
            this.user = user;
            this.idl = idl;
        }

        public long getId() { return id; }
        public double getUser() { return user; }
        public long getWho() { return (long) user; }
        public double getIdl() { return idl; }
        public long getTime() { return passed + (long) (id * EVENT_GAP_MS); }
    }

    public static final class Person {
        private final long id;
        private final long name;
        private final double score;

        public Person(long id, long name, double score) {
            this.id = id;
            this.name = name;
            this.score = score;
        }

        public long getId() { return id; }
        public long getName() { return name; }
        public double getScore() { return score; }
    }

    private static final class Count implements UpdateListener {
        long rows;

        public void update(EventBean[] inserted, EventBean[] removed, EPStatement statement, EPRuntime runtime) {
            rows += (inserted == null ? 0 : inserted.length) + (removed == null ? 0 : removed.length);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Thread.currentThread().setContextClassLoader(Throughput.class.getClassLoader());
        Count count = new Count();
        EPRuntime runtime = deployed(arguments[0], count);
        if (arguments.length > 2) {
            EventSender people = runtime.getEventService().getEventSender("Person");
            DoubleBuffer given = rows(arguments[2]);
            while (given.hasRemaining()) {
                people.sendEvent(new Person((long) given.get(), (long) given.get(), given.get()));
            }
        }
        DoubleBuffer rows = rows(arguments[1]);
        Event[] events = new Event[rows.remaining() / 3];
        for (int i = 0; i < events.length; i++) {
            events[i] = new Event((long) rows.get(), rows.get(), rows.get());
        }
        EventSender sender = runtime.getEventService().getEventSender("Event");
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        BufferedReader turns = new BufferedReader(new InputStreamReader(System.in));
        for (String line = turns.readLine(); line != null; line = turns.readLine()) {
            int passes = Integer.parseInt(line.trim());
            count.rows = 0;
            long begin = system.getProcessCpuTime();
            for (int pass = 0; pass < passes; pass++) {
                send(sender, events);
                passed += (long) (events.length * EVENT_GAP_MS);
            }
            double seconds = (system.getProcessCpuTime() - begin) / 1e9;
            long sent = (long) passes * events.length;
            System.out.println("{\"events\": " + sent + ", \"outputs\": " + count.rows + ", \"seconds\": " + seconds
                + ", \"events_per_s\": " + Math.round(sent / seconds) + "}");
        }
    }

    private static void send(EventSender sender, Event[] events) {
        for (int i = 0; i < events.length; i++) {
            sender.sendEvent(events[i]);
        }
    }

    private static EPRuntime deployed(String epl, UpdateListener listener) throws Exception {
        Configuration configuration = new Configuration();
        configuration.getCommon().addEventType("Event", Event.class);
        configuration.getCommon().addEventType("Person", Person.class);
        configuration.getRuntime().getThreading().setInternalTimerEnabled(false);
        EPCompiled compiled = EPCompilerProvider.getCompiler().compile(epl, new CompilerArguments(configuration));
        EPRuntime runtime = EPRuntimeProvider.getDefaultRuntime(configuration);
        runtime.getDeploymentService().deploy(compiled).getStatements()[0].addListener(listener);
        return runtime;
    }

    private static DoubleBuffer rows(String file) throws Exception {
        return ByteBuffer.wrap(Files.readAllBytes(Paths.get(file))).order(ByteOrder.LITTLE_ENDIAN).asDoubleBuffer();
    }
}
