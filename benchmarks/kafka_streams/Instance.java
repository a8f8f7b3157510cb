import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.Iterator;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.LagInfo;
import org.apache.kafka.streams.TaskMetadata;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.Topology;

/**
 * Runs a topology as one instance of its application.
 *
 * For each line on standard input it writes a line of JSON: its state, the partitions of its active and its standby tasks, and how many
 * records it still has to restore. It ends when standard input does.
 *
 * Plain enough for Janino to compile it.
 */
public final class Instance {
    private Instance() { }

    public static Properties properties(String path) throws IOException {
        Properties properties = new Properties();
        FileInputStream file = new FileInputStream(path);
        properties.load(file);
        file.close();
        return properties;
    }

    public static void run(Topology topology, Properties properties) throws IOException {
        KafkaStreams streams = new KafkaStreams(topology, properties);
        streams.start();
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        while (asked.readLine() != null) {
            System.out.println(status(streams));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void add(StringBuilder partitions, Iterator tasks) {
        while (tasks.hasNext()) {
            if (partitions.length() > 0) { partitions.append(", "); }
            partitions.append(((TaskMetadata) tasks.next()).taskId().partition());
        }
    }

    private static String status(KafkaStreams streams) {
        StringBuilder active = new StringBuilder();
        StringBuilder standby = new StringBuilder();
        Iterator threads = streams.metadataForLocalThreads().iterator();
        while (threads.hasNext()) {
            ThreadMetadata thread = (ThreadMetadata) threads.next();
            add(active, thread.activeTasks().iterator());
            add(standby, thread.standbyTasks().iterator());
        }
        long lag = 0;
        Iterator stores = streams.allLocalStorePartitionLags().values().iterator();
        while (stores.hasNext()) {
            Iterator lags = ((Map) stores.next()).values().iterator();
            while (lags.hasNext()) { lag += ((LagInfo) lags.next()).offsetLag(); }
        }
        return "{\"state\": \"" + streams.state() + "\", \"active\": [" + active + "], \"standby\": [" + standby
            + "], \"lag\": " + lag + "}";
    }
}
