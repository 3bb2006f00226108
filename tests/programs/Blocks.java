import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.zip.CRC32;
import java.util.zip.Deflater;

/** Allocates memory outside Java's heap in four threads, compresses, and prints check sums. */
public class Blocks implements Runnable {
    private final int seed;
    private final CRC32 sum = new CRC32();

    private Blocks(int seed) {
        this.seed = seed;
    }

    @Override
    public void run() {
        Random random = new Random(seed);
        ByteBuffer[] blocks = new ByteBuffer[64];
        byte[] packed = new byte[200_000];
        for (int i = 0; i < 2000; i++) {
            ByteBuffer block = ByteBuffer.allocateDirect(1 + random.nextInt(60_000));
            while (block.hasRemaining()) {
                block.put((byte) (block.position() * seed + i));
            }
            blocks[i % blocks.length] = block.flip();
            if (i % 20 == 19) {
                Deflater deflater = new Deflater();
                deflater.setInput(blocks[random.nextInt(20)].duplicate());
                deflater.finish();
                sum.update(packed, 0, deflater.deflate(packed));
                deflater.end();
            }
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        List<Blocks> works = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int seed = 1; seed <= 4; seed++) {
            Blocks work = new Blocks(seed);
            works.add(work);
            threads.add(new Thread(work));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        for (Blocks work : works) {
            System.out.println(Long.toHexString(work.sum.getValue()));
        }
    }
}
