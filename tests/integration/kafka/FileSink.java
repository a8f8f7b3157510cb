import java.time.Duration;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.file.FileStreamSinkTask;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.storage.StringConverter;

/**
 * What a worker of Kafka Connect does for one partition of a file sink, with Connect's own converters and task, and without a worker:
 * `FileSink BOOTSTRAP TOPIC FILE COUNT`. It ends after so many records. Each must have a key that is a text and a value that is JSON.
 *
 * Plain enough for Janino to compile it.
 */
public final class FileSink {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        Properties settings = new Properties();
        settings.setProperty("bootstrap.servers", arguments[0]);
        settings.setProperty("group.id", "connect-" + topic);
        settings.setProperty("auto.offset.reset", "earliest");
        settings.setProperty("isolation.level", "read_committed");
        KafkaConsumer consumer = new KafkaConsumer(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(Collections.singletonList(topic));
        StringConverter keys = new StringConverter();
        keys.configure(new HashMap(), true);
        JsonConverter values = new JsonConverter();
        Map plain = new HashMap();
        plain.put("schemas.enable", "false");
        values.configure(plain, false);
        FileStreamSinkTask task = new FileStreamSinkTask();
        Map place = new HashMap();
        place.put("file", arguments[2]);
        task.start(place);
        int left = Integer.parseInt(arguments[3]);
        while (left > 0) {
            Iterator records = consumer.poll(Duration.ofMillis(200L)).iterator();
            while (records.hasNext()) {
                ConsumerRecord record = (ConsumerRecord) records.next();
                SchemaAndValue key = keys.toConnectData(topic, (byte[]) record.key());
                SchemaAndValue value = values.toConnectData(topic, (byte[]) record.value());
                if (!(key.value() instanceof String) || !(value.value() instanceof Map)) {
                    throw new IllegalStateException("a record is no text with an object: " + key.value() + " " + value.value());
                }
                task.put(Collections.singletonList(
                    new SinkRecord(topic, record.partition(), key.schema(), key.value(), value.schema(), value.value(), record.offset())));
                left--;
            }
        }
        task.flush(new HashMap());
        task.stop();
        consumer.close();
    }
}
