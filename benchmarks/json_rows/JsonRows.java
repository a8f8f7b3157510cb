import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A plain transactional producer of rows in JSON, one per message: `JsonRows PROPERTIES TOPIC`.
 *
 * For each line on standard input, `ROWS TRANSACTIONS`, it writes so many transactions of so many rows each, and tells as a line how
 * many nanoseconds that took. The first line is told when it may write. It ends when standard input does.
 *
 * Plain enough for Janino to compile it.
 */
public final class JsonRows {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        FileInputStream file = new FileInputStream(arguments[0]);
        settings.load(file);
        file.close();
        KafkaProducer producer = new KafkaProducer(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        System.out.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        JsonFactory json = new JsonFactory();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] numbers = line.trim().split(" ");
            int rows = Integer.parseInt(numbers[0]);
            int transactions = Integer.parseInt(numbers[1]);
            long begin = System.nanoTime();
            for (int i = 0; i < transactions; i++) {
                producer.beginTransaction();
                for (int row = 0; row < rows; row++) {
                    byte[] key = Integer.toString(row).getBytes(StandardCharsets.UTF_8);
                    producer.send(new ProducerRecord(arguments[1], Integer.valueOf(0), key, value(json, row)));
                }
                producer.commitTransaction();
            }
            System.out.println(System.nanoTime() - begin);
        }
        producer.close();
    }

    private static byte[] value(JsonFactory json, int row) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(128);
        JsonGenerator out = json.createGenerator(bytes);
        out.writeStartObject();
        out.writeStringField("opcode", "I");
        out.writeStringField("flags", "N");
        out.writeNumberField("id", row);
        out.writeStringField("card", "card-" + row % 1000);
        out.writeNumberField("amount", row * 0.25);
        out.writeNumberField("hs:sequence", row);
        out.writeEndObject();
        out.close();
        return bytes.toByteArray();
    }
}
