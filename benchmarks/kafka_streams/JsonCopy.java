import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.connect.json.JsonDeserializer;
import org.apache.kafka.connect.json.JsonSerializer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;

/**
 * One instance of a Kafka Streams application: `JsonCopy PROPERTIES INPUT OUTPUT`.
 *
 * Reads a JSON document from each message, and writes it as a message with the same key, by the serdes of Kafka's own JSON classes. Keys
 * stay bytes, which costs the least. `Instance` says how it is asked.
 *
 * Plain enough for Janino to compile it.
 */
public final class JsonCopy {
    public static void main(String[] arguments) throws Exception {
        Serde keys = Serdes.ByteArray();
        Serde documents = Serdes.serdeFrom(new JsonSerializer(), new JsonDeserializer());
        StreamsBuilder builder = new StreamsBuilder();
        KStream rows = builder.stream(arguments[1], Consumed.with(keys, documents));
        rows.to(arguments[2], Produced.with(keys, documents));
        Instance.run(builder.build(), Instance.properties(arguments[0]));
    }
}
