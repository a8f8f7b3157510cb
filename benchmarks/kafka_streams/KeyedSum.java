import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * One instance of a Kafka Streams application: `KeyedSum PROPERTIES INPUT OUTPUT INSTANCE HEADER`.
 *
 * For each event, a JSON message with its key as Kafka's key, it adds one to the key's count and the event's value to the key's sum,
 * keeps the newest time of creation, and puts the three out. What can be cheap is cheap: keys stay bytes, state and outputs are 24 bytes.
 * The store is cached, so its changelog gets a record for each key that changed between two commits; outputs do not pass
 * that cache, so there is one for every event.
 *
 * INSTANCE is a digit. Unless HEADER is "", each output has a header of that name: when this instance took the partition over, in
 * milliseconds, and the digit behind it: a number that grows, by which a reader tells who put it out. `Instance` says how it is asked.
 *
 * Plain enough for Janino to compile it.
 */
public final class KeyedSum {
    private static final String STORE = "totals";

    private static final class Sum implements Processor {
        private final JsonFactory json = new JsonFactory();
        private final String instance;
        private final String header;
        private ProcessorContext context;
        private KeyValueStore store;
        private Headers headers;

        Sum(String instance, String header) {
            this.instance = instance;
            this.header = header;
        }

        public void init(ProcessorContext context) {
            this.context = context;
            this.store = (KeyValueStore) context.getStateStore(STORE);
            if (this.header.length() == 0) { return; }
            String epoch = System.currentTimeMillis() + this.instance;
            RecordHeaders made = new RecordHeaders();
            made.add(this.header, epoch.getBytes(StandardCharsets.UTF_8));
            made.setReadOnly();
            this.headers = made;
        }

        public void process(Record record) {
            byte[] message = (byte[]) record.value();
            if (message == null) { return; }
            double value = 0;
            long created = 0;
            try {
                JsonParser parser = this.json.createParser(message);
                parser.nextToken();
                while (parser.nextToken() == JsonToken.FIELD_NAME) {
                    String name = parser.getCurrentName();
                    parser.nextToken();
                    if (name.equals("value")) {
                        value = parser.getDoubleValue();
                    } else if (name.equals("created")) {
                        created = parser.getLongValue();
                    }
                }
                parser.close();
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
            byte[] before = (byte[]) this.store.get(record.key());
            long count = 1;
            double total = value;
            if (before != null) {
                ByteBuffer held = ByteBuffer.wrap(before);
                count += held.getLong();
                total += held.getDouble();
                created = Math.max(created, held.getLong());
            }
            byte[] after = ByteBuffer.allocate(24).putLong(count).putDouble(total).putLong(created).array();
            this.store.write_candidate(record.key(), after);
            this.context.forward(new Record(record.key(), after, record.timestamp(), this.headers));
        }

        public void close() { }
    }

    private static final class Sums implements ProcessorSupplier {
        private final String instance;
        private final String header;

        Sums(String instance, String header) {
            this.instance = instance;
            this.header = header;
        }

        public Processor get() { return new Sum(this.instance, this.header); }
    }

    public static void main(String[] arguments) throws Exception {
        Properties properties = Instance.properties(arguments[0]);
        StoreBuilder store = Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore(STORE), Serdes.ByteArray(), Serdes.ByteArray()).withCachingEnabled();
        Topology topology = new Topology();
        topology.addSource("events", new ByteArrayDeserializer(), new ByteArrayDeserializer(), new String[] {arguments[1]});
        topology.addProcessor("sum", new Sums(arguments[3], arguments[4]), new String[] {"events"});
        topology.addStateStore(store, new String[] {"sum"});
        topology.addSink("out", arguments[2], new ByteArraySerializer(), new ByteArraySerializer(), new String[] {"sum"});
        Instance.run(topology, properties);
    }
}
