"""An autoencoder with Lightning's Trainer, as in "Lightning in 15 minutes", trained on random images."""

import lightning as L
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

L.seed_everything(0)
encoder = nn.Sequential(nn.Linear(8 * 8, 16), nn.ReLU(), nn.Linear(16, 3))
decoder = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 8 * 8))


class LitAutoEncoder(L.LightningModule):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def training_step(self, batch, _batch_idx):
        x, _ = batch
        x = x.view(x.size(0), -1)
        z = self.encoder(x)
        x_hat = self.decoder(z)
        loss = nn.functional.mse_loss(x_hat, x)
        self.log("train_loss", loss)
        return loss

    def on_train_epoch_end(self):
        self.print(f"epoch {self.current_epoch} on {self.trainer.world_size} processes")

    def configure_optimizers(self):
        return optim.Adam(self.parameters(), lr=1e-3)


autoencoder = LitAutoEncoder(encoder, decoder)
dataset = TensorDataset(torch.randn(64, 1, 8, 8), torch.zeros(64))
train_loader = DataLoader(dataset, batch_size=8)

trainer = L.Trainer(accelerator="auto", devices="auto", max_epochs=2)
trainer.fit(model=autoencoder, train_dataloaders=train_loader)
model = autoencoder
